//! What must hold.

use super::{World, compiler::ALOOF, labels};
use crate::controllers::job::{
    decide::{Child, Owned},
    observed::{Loaded, Run, Wanted},
};

impl World {
    /// What must hold after every write.
    pub(super) fn check_invariants(&self, what: &str) {
        let Some(plan) = self.status.plan.as_ref().filter(|_| self.status.generation.is_some()) else { return };
        let (wanted, _) = &self.plans[&plan.sha256];
        assert_eq!(Some(wanted.generation), self.status.generation, "{what}: the plan is of the committed generation");
        for (id, pe) in &self.children.processing_elements {
            assert!(
                !pe.launched || pe.generation <= wanted.generation,
                "{what}: PE {id} was started before its generation was committed"
            );
        }
    }

    /// What is about to be committed is all there.
    pub(super) fn assert_complete(&self) {
        let proposal = self.status.proposal.as_ref().expect("something is proposed");
        let (wanted, _) = &self.plans[&proposal.plan.sha256];
        for (id, pe) in &wanted.processing_elements {
            assert!(pe.choose(&self.children).is_some(), "the text of PE {id} is written");
            let object = self.children.processing_elements.get(id);
            if let Some(object) = object.filter(|object| object.generation == wanted.generation) {
                assert_eq!(
                    Some(&object.object.applied),
                    pe.choose(&self.children).map(|(_, t)| &t.processing_element),
                    "PE {id}"
                );
            }
        }
    }

    /// No generation has only some of the widths that were asked for at once.
    pub(super) fn assert_wanted_as_a_whole(&self) {
        let proposal = self.status.proposal.as_ref().expect("something is proposed");
        let (wanted, _) = &self.plans[&proposal.plan.sha256];
        let is_first = self.status.generation.is_none();
        assert!(
            is_first || self.wanted_widths.contains(&wanted.widths),
            "{:?} were never wanted: {:?}",
            wanted.widths,
            self.wanted_widths
        );
    }

    /// Of what the committed generation does not have, nothing is left but what is on its way out.
    pub(super) fn assert_nothing_superfluous(&self) {
        let plans = self.status.plan.iter().chain(self.status.proposal.as_ref().map(|p| &p.plan));
        let generations: Vec<_> = plans.map(|plan| &*self.plans[&plan.sha256].0).collect();
        let children = &self.children;
        for id in children.processing_elements.keys() {
            assert!(generations.iter().any(|wanted| wanted.processing_elements.contains_key(id)), "PE {id} is left");
        }
        for (id, _) in children.services.iter().filter(|(_, object)| !object.deleting) {
            assert!(
                generations.iter().any(|wanted| wanted.processing_elements.contains_key(id)),
                "Service {id} is left"
            );
        }
        let texts = |wanted: &'_ Wanted| -> Vec<String> {
            let texts = wanted.processing_elements.values().flat_map(|pe| [Some(&pe.text), pe.carried.as_ref()]);
            texts.flatten().map(|text| text.config_map.clone()).collect()
        };
        let used: Vec<String> = generations.into_iter().flat_map(texts).collect();
        for (name, _) in children.texts.iter().filter(|(_, object)| !object.deleting) {
            assert!(used.contains(name), "text {name} is left");
        }
    }

    /// Nobody refers to what the controller deletes.
    pub(super) fn assert_unused(&self, object: &Owned) {
        let plans = self.status.plan.iter().chain(self.status.proposal.as_ref().map(|p| &p.plan));
        let generations: Vec<_> = plans.map(|plan| &self.plans[&plan.sha256].0).collect();
        match object {
            Owned::ConfigMap(name) => {
                let pes = &self.children.processing_elements;
                let clean = self.status.generation.is_none() && self.status.proposal.is_none();
                assert!(clean || !pes.values().any(|pe| pe.config_map == *name), "{name} is mounted");
                for wanted in generations {
                    let used = wanted.processing_elements.values().any(|pe| pe.text.config_map == *name);
                    assert!(!used, "{name} is text of generation {}", wanted.generation);
                }
            }
            Owned::Child(Child::ProcessingElement(id)) => {
                let used = generations.iter().any(|wanted| wanted.processing_elements.contains_key(id));
                assert!(!used, "PE {id} is in use");
            }
            _ => {}
        }
    }

    /// What must hold when nothing happens any more.
    pub(in super::super) fn check_at_rest(&mut self) {
        if self.failed() {
            assert!(self.children.only_chunks(), "nothing half-created stays: {:?}", self.children);
            assert!(self.children.chunks.is_empty() && self.regions.is_empty());
            return;
        }
        let observed = self.observe();
        let Some(Loaded::Whole(wanted)) = &observed.committed else {
            panic!("nothing is committed: {:?}", self.status)
        };
        assert_eq!(observed.desired_widths, wanted.widths, "what is desired is applied");
        assert_eq!(self.status.proposal, None);
        let children = &observed.children;
        let missing = |id: &&u64| !children.processing_elements.contains_key(id);
        let missing: Vec<_> = wanted.processing_elements.keys().filter(missing).collect();
        assert!(missing.iter().all(|id| **id == ALOOF), "only what is not restartable may be missing: {missing:?}");
        for (id, pe) in &children.processing_elements {
            let expected = wanted.processing_elements.get(id).unwrap_or_else(|| panic!("PE {id} is left over"));
            assert_eq!(
                Some(&pe.object.applied),
                expected.choose(children).map(|(_, t)| &t.processing_element),
                "PE {id}"
            );
            assert_eq!(pe.run, Run::Ready, "PE {id}");
        }
        assert!(children.services.keys().eq(wanted.processing_elements.keys()));
        assert!(children.host_pools.iter().map(|(i, o)| (i, &o.applied)).eq(wanted.host_pools.iter()));
        assert!(self.regions.keys().eq(wanted.regions.keys()));
        assert_eq!(children.job_config_map.as_ref().map(|o| o.applied.clone()), Some(labels(&self.status)));
        for name in children.texts.keys() {
            let texts = wanted.processing_elements.values().flat_map(|pe| [Some(&pe.text), pe.carried.as_ref()]);
            assert!(texts.flatten().any(|text| text.config_map == *name), "text {name} is left over");
        }
        assert_eq!(children.chunks.len(), 3, "the chunks of the ADL and of the plan: {:?}", children.chunks);
        let condition = |kind| streams_api::condition::is_true(&self.status.conditions, kind);
        assert!(condition("Submitted"), "{:?}", self.status.conditions);
        assert_eq!(condition("Ready"), missing.is_empty());
        assert_eq!(condition("Degraded"), !missing.is_empty());
        assert!(!condition("Progressing"));
        let rollout = self.status.rollout.as_ref().unwrap();
        assert!(rollout.finished_at.is_some() && rollout.pending == 0);
    }
}
