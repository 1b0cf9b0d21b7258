//! What holds before a status is written: of the job, where a step is taken, and of requests.
//!
//! A commit is the moment from which on a generation is in force. What is committed was proposed and wanted as a whole,
//! nobody was told before that it does not come, and all of it is there. A roll-out that is over has left nothing
//! behind.

use super::super::journal::Journal;
use super::super::{JOB, NAMESPACE, key};
use super::writes::Now;
use super::{names_of, names_of_chunks, texts_of};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::owned::Part;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{
    DesiredWidth, Export, Job, JobStatus, ParallelRegion, ProcessingElement, Resize, ResizePhase, names,
};
use streams_kubernetes::Key;
use streams_kubernetes_fake::{Call, Verb};

impl Now<'_> {
    /// A status follows from the one that was read, and says nothing that is not so.
    pub(super) fn status_is_replaced(&self, call: &Call, journal: &mut Journal) {
        if let Some(request) = call.object::<Resize>() {
            return self.request_says(&request);
        }
        let written: Job = call.object().expect("only the status of the job is written");
        let version = written.metadata.resource_version.clone();
        assert!(version.is_some(), "a status is written by compare-and-swap");
        if version != self.job.metadata.resource_version {
            return;
        }
        let after = written.status.unwrap_or_default();
        if let Some(proposal) = &after.proposal {
            // Panics if the chunks are not there.
            journal.generation(self.server, &proposal.plan);
        }
        if after.generation.is_some() && after.generation != self.status.generation {
            self.is_committed(&after, journal);
            let regions = self.server.list::<ParallelRegion>();
            let uids: BTreeSet<String> = regions.into_iter().filter_map(|region| region.metadata.uid).collect();
            journal.regions_at_commits.extend(after.generation.map(|generation| (generation, uids)));
            if !journal.is_behind() {
                self.is_complete();
                let plan = after.plan.as_ref().expect("a plan is committed");
                let document = Document::Plan { generation: plan.generation };
                let chunks = names_of_chunks(&document, &plan.sha256, plan.chunks);
                let are_there = chunks.is_subset(&names_of::<ConfigMap>(self.server));
                assert!(are_there, "the plan that is committed is not stored: {chunks:?}");
            }
        }
        let is_finished = |status: &JobStatus| status.rollout.as_ref().is_some_and(|r| r.finished_at.is_some());
        if is_finished(&after) && !is_finished(self.status) && !journal.is_behind() {
            self.nothing_is_superfluous(journal);
        }
    }

    /// A request says that it is in force when the specs of its regions have its widths, or were edited since; and
    /// nothing of a request whose phase is final.
    fn request_says(&self, after: &Resize) {
        let before: Option<Resize> = self.server.get(&Key::of(after));
        let Some(before) = before.filter(|before| before.metadata.resource_version == after.metadata.resource_version)
        else {
            return;
        };
        assert!(!before.phase().is_final(), "{} was over: {:?}", after.name_any(), before.status);
        if after.phase() == ResizePhase::Written {
            let generation = after.status.as_ref().and_then(|status| status.generation);
            assert!(generation.is_some() && generation <= self.status.generation, "{:?}", after.status);
        }
    }

    /// What is committed was proposed, and wanted as a whole.
    fn is_committed(&self, after: &JobStatus, journal: &Journal) {
        let proposed = self.proposed.as_ref().expect("what is committed was proposed");
        assert_eq!(after.generation, Some(proposed.number));
        let widths: BTreeMap<String, u32> =
            after.applied_widths.iter().map(|applied| (applied.region.clone(), applied.width)).collect();
        assert_eq!(widths, proposed.widths());
        let before = self.committed.as_ref().map(|committed| committed.widths()).unwrap_or_default();
        for region in &proposed.plan.parallel_regions {
            let before = before.get(&region.name).copied();
            let said = after.region(region.index).expect("each region is listed");
            let brought = match before {
                Some(before) if before == region.width => {
                    self.status.region(region.index).and_then(|region| region.generation)
                }
                _ => Some(proposed.number),
            };
            assert_eq!(said.generation, brought, "the generation that brought the width of {}", region.name);
            let before = before.filter(|before| *before != region.width);
            let said = said.width_before;
            // A change that a region has not said yet counts as one of this generation, unless it was made again since.
            let untold = self.status.region(region.index).and_then(|region| region.width_before);
            let untold = untold.filter(|_| before.is_none());
            let is_silent = self.is_silent(region.index, journal).filter(|_| !journal.is_behind());
            let expected = [false, true].map(|is_silent| before.or(untold.filter(|_| is_silent)));
            match is_silent {
                Some(is_silent) => {
                    assert_eq!(said, expected[usize::from(is_silent)], "the width before of {}", region.name)
                }
                // It may have been shown as it was before.
                None => assert!(expected.contains(&said), "{said:?} before, of {}", region.name),
            }
        }
        let is_first = self.committed.is_none();
        if journal.admitted.is_empty() {
            assert!(is_first || journal.wanted.contains(&widths), "{widths:?} were never wanted: {:?}", journal.wanted);
            return;
        }
        self.is_not_cancelled(&widths, journal);
        // Whom the commit carries out has all of the widths that they want.
        let carried_out = self.status.proposal.as_ref().map(|proposal| proposal.resizes.clone()).unwrap_or_default();
        for (number, request) in &journal.admitted {
            if carried_out.contains(number) {
                let has = |wanted: &DesiredWidth| widths.get(&wanted.name) == Some(&wanted.width);
                assert!(request.spec.regions.iter().all(has), "{:?} of {}", widths, request.name_any());
            }
        }
    }

    /// Whether the region was there when the generation in force was committed, and has said no width yet. `None` if
    /// there is none, or one that was made in the second of that commit: its time does not tell which came first.
    fn is_silent(&self, index: u64, journal: &Journal) -> Option<bool> {
        let name = names::parallel_region(JOB, index);
        let region: ParallelRegion = self.server.get(&Key::new(NAMESPACE, &name))?;
        if region.status.as_ref().is_some_and(|status| status.width.is_some()) {
            return Some(false);
        }
        let at_commit = self.status.generation.and_then(|generation| journal.regions_at_commits.get(&generation));
        if at_commit.zip(region.uid()).is_some_and(|(at_commit, uid)| at_commit.contains(&uid)) {
            return Some(true);
        }
        let committed = self.status.rollout.as_ref().and_then(|rollout| rollout.started_at.as_ref());
        let created = region.metadata.creation_timestamp.map(|created| created.0.as_second());
        (created > committed.map(|committed| committed.0.as_second())).then_some(false)
    }

    /// Of these widths none comes into force that only somebody has wanted who was told that it does not.
    fn is_not_cancelled(&self, widths: &BTreeMap<String, u32>, journal: &Journal) {
        let in_force = self.committed.as_ref().map(|committed| committed.widths()).unwrap_or_default();
        let requests: Vec<Resize> = self.server.list();
        let is_cancelled = |request: &&Resize| request.phase() == ResizePhase::Cancelled;
        let wants = |request: &Resize, of: &DesiredWidth| {
            request.spec.regions.iter().any(|wanted| wanted.name == of.name && wanted.width == of.width)
        };
        let proposal = self.status.proposal.as_ref();
        for request in requests.iter().filter(is_cancelled) {
            let number = request.status.as_ref().and_then(|status| status.number);
            let is_of_proposal =
                proposal.zip(number).is_some_and(|(proposal, number)| proposal.resizes.contains(&number));
            for wanted in request.spec.regions.iter().filter(|_| is_of_proposal) {
                let is_changed = in_force.get(&wanted.name) != Some(&wanted.width);
                let comes = is_changed && widths.get(&wanted.name) == Some(&wanted.width);
                let is_edit = journal.wanted.iter().any(|widths| widths.get(&wanted.name) == Some(&wanted.width));
                let mut others = requests.iter().chain(journal.admitted.values()).filter(|other| !is_cancelled(other));
                let is_wanted = is_edit || others.any(|other| wants(other, wanted));
                assert!(!comes || is_wanted, "{} was cancelled: {widths:?}", request.name_any());
            }
        }
    }

    /// What is committed is all there.
    fn is_complete(&self) {
        let Some(proposed) = &self.proposed else { return };
        let texts = names_of::<ConfigMap>(self.server);
        let services = names_of::<Service>(self.server);
        for (pe, origin) in proposed.members() {
            let refers_to = [&pe.content_id, &origin.content_id].map(|id| names::aadl_config_map(JOB, pe.id, id));
            assert!(refers_to.iter().any(|text| texts.contains(text)), "PE {} has no text", pe.id);
            let name = names::processing_element(JOB, pe.id);
            let is_new = self.committed.as_ref().is_none_or(|before| before.members().all(|(b, _)| b.id != pe.id));
            if is_new {
                let object: Option<ProcessingElement> = self.server.get(&Key::new(NAMESPACE, &name));
                let is_it = object.is_some_and(|object| object.spec.runtime_id == pe.runtime_id);
                assert!(is_it, "new PE {} is not there", pe.id);
                assert!(services.contains(&name), "the Service of PE {} is not there", pe.id);
            }
        }
        // One that was there and that somebody has deleted is made again afterwards.
        let before = self.committed.as_ref().map(|before| before.widths()).unwrap_or_default();
        let regions = names_of::<ParallelRegion>(self.server);
        for region in &proposed.plan.parallel_regions {
            let is_there = regions.contains(&names::parallel_region(JOB, region.index));
            assert!(is_there || before.contains_key(&region.name), "region {}", region.name);
        }
    }

    /// Of what the committed generation does not have, nothing is left but what is on its way out, with the Services
    /// and texts of such PEs (rule job-17), and texts that were written since the status was: their plan is being
    /// stored, and is recorded afterwards (rule job-3).
    fn nothing_is_superfluous(&self, journal: &Journal) {
        let mut kept: Vec<ProcessingElement> = self.server.list();
        kept.retain(|pe| !self.has_pe(pe.spec.id));
        for pe in &kept {
            assert!(pe.metadata.deletion_timestamp.is_some(), "PE {} is left", pe.spec.id);
        }
        let is_kept = |id: u64| kept.iter().any(|pe| pe.spec.id == id);
        for service in self.server.list::<Service>() {
            let Some(id) = service.labels().get(names::LABEL_PE) else { continue };
            let id = id.parse().unwrap();
            let is_going = service.metadata.deletion_timestamp.is_some();
            assert!(is_going || is_kept(id) || self.has_pe(id), "Service of PE {id} is left");
        }
        for export in self.server.list::<Export>() {
            let is_going = export.metadata.deletion_timestamp.is_some();
            assert!(is_going || self.exports(export.spec.pe_id), "export of PE {} is left", export.spec.pe_id);
        }
        let of_kept = kept.iter().map(|pe| pe.spec.config_map.name.clone());
        let used: BTreeSet<String> = self.generations().flat_map(texts_of).chain(of_kept).collect();
        let status = format!("{:?} Job {}", Verb::ReplaceStatus, key());
        let since = journal.writes.iter().rev().skip(1).take_while(|write| **write != status);
        let written: BTreeSet<&str> = since.map(String::as_str).collect();
        for map in self.server.list::<ConfigMap>() {
            let is_text = Part::of_name(JOB, &map.name_any()) == Some(Part::Text);
            let is_going = map.metadata.deletion_timestamp.is_some();
            let is_new = written.contains(&*format!("{:?} ConfigMap {}", Verb::Create, Key::of(&map)));
            assert!(
                !is_text || is_going || is_new || used.contains(&map.name_any()),
                "text {} is left",
                map.name_any()
            );
        }
    }
}
