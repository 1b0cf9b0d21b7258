//! Which ports the pod of a PE has, as far as the text that it was made from tells (rule import-5).
//!
//! An object that was not written yet for the committed generation has no port that this generation adds. One that was
//! says what its next pod will have: the pod that runs is replaced a moment later, unless something keeps the next one
//! away.
//!
//! To read a PE means to unpack all of it, and it lists as many ports as it has. So what is read is kept until the
//! mirror has another state of the PE: whoever looks at all of its ports, one after the other, reads it once (rule
//! import-10).
//!
//! Knows: PE objects, what is recorded of their pods. Must not know: boards, who is told.
//!
//! Invariant: what is answered of a PE is of the state that the mirror has of it.

use crate::broker::predecessors::Side;
use kube::core::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{ProcessingElement, names};
use streams_broker::Pe;
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::watch::{Kept, Watch};

/// What a PE says of the ports of its pod.
pub(super) struct KnownText {
    /// The state of the PE that it was read of.
    state: Kept<ProcessingElement>,
    /// Uid of the job that controls the PE.
    job: Option<String>,
    /// The newest generation that has written the PE.
    generation: u64,
    /// The pod was made from another text than the PE has by now.
    runs_another: bool,
    /// The ports of the text that the PE has by now.
    exported_ports: BTreeSet<u32>,
    input_ports: BTreeSet<u32>,
}

impl KnownText {
    fn of(state: Kept<ProcessingElement>) -> Option<Self> {
        let element = state.read()?;
        let spec = &element.spec;
        let launched = element.status.as_ref().and_then(|status| status.runtime_id.as_ref());
        Some(Self {
            job: controller(&element.metadata).map(|job| job.uid.clone()),
            generation: spec.generation,
            runs_another: launched.is_some_and(|launched| *launched != spec.runtime_id),
            exported_ports: spec.exported_ports.iter().copied().collect(),
            input_ports: spec.input_ports.iter().copied().collect(),
            state,
        })
    }

    /// Whether the job with this uid controls the PE.
    pub(super) fn is_of(&self, job: &str) -> bool {
        self.job.as_deref() == Some(job)
    }

    /// Whether the pod lacks a port that this generation has added; `has_waited`: it did when this was asked last. A
    /// pod that runs another text than the PE has runs an older one, but it is not said of which generation that is. So
    /// a port counts for it that is older than the newest text, unless it has been waited for before.
    pub(super) fn lacks(&self, side: Side, port: u32, since: u64, has_waited: bool) -> bool {
        let listed = match side {
            Side::Export => &self.exported_ports,
            Side::Import => &self.input_ports,
        };
        let is_of_another = has_waited || since >= self.generation;
        !listed.contains(&port) || (is_of_another && self.runs_another)
    }
}

/// What was read of PEs, for who asks again.
#[derive(Default)]
pub(super) struct KnownTexts {
    of_pes: BTreeMap<Pe, KnownText>,
    /// How often a PE was read.
    #[cfg(test)]
    pub(super) reads: usize,
}

impl KnownTexts {
    /// What the PE says, whose object has this key, if there is one.
    pub(super) fn of(&mut self, pe: &Pe, key: &Key, elements: &Watch<ProcessingElement>) -> Option<&KnownText> {
        let state = elements.kept(key);
        let known = self.of_pes.get(pe).map(|known| &known.state);
        if !known.zip(state.as_ref()).is_some_and(|(known, state)| known.is_identical(state)) {
            self.forget(pe);
            let text = KnownText::of(state?)?;
            #[cfg(test)]
            {
                self.reads += 1;
            }
            self.of_pes.insert(pe.clone(), text);
        }
        self.of_pes.get(pe)
    }

    /// Nobody asks for the PE again.
    pub(super) fn forget(&mut self, pe: &Pe) {
        self.of_pes.remove(pe);
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn are_none(&self) -> bool {
        self.of_pes.is_empty()
    }
}

/// Whether it is known which text a pod of this PE runs: what counts of the PE, the pod then has. It is not while the
/// PE is seen as it was before the pod was made, nor of an older pod once the launch of the next one is recorded. Pods
/// of earlier versions that say nothing of their text are taken for known.
pub(crate) fn is_known(pod: &ObjectMeta, element: &ProcessingElement) -> bool {
    let is_recorded = element.status.as_ref().is_some_and(|status| status.launch_of(pod.uid.as_deref()).is_some());
    let told = pod.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_RUNTIME_ID));
    is_recorded || told.is_none_or(|told| *told == element.spec.runtime_id)
}
