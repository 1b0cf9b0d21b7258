//! The answers of the API server during one reconcile. Later observations of the same reconcile use them.

use super::observed::{AbsentPod, ObservedPod, OwnerJob};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use streams_api::{ProcessingElement, ProcessingElementStatus};
use streams_kubernetes::Error;

/// The answers about one PE, which go before the mirrors.
#[derive(Default)]
pub(crate) struct Answers {
    /// The PE as it was read, written, or seen last.
    pub(super) pe: Option<ProcessingElement>,
    /// It came from the API server during this reconcile.
    pub(super) is_fresh: bool,
    /// Pods that the API server showed and that the mirror may not have yet.
    pub(super) pods: Vec<ObservedPod>,
    /// The pod that was created: of this one it is known what it was made from, whatever admission has made of its
    /// annotations (rule pe-25).
    pub(super) created: Option<ObservedPod>,
    /// Pods of an earlier PE object of the same name that the API server showed and that the mirror may not have yet.
    pub(super) predecessors: Vec<ObservedPod>,
    /// The launch count whose pod does not exist, as of the PE that was read or written last.
    pub(super) vanished: Option<(u64, AbsentPod)>,
    /// What the job is to the PE, if the API server was asked for it.
    pub(super) job: Option<OwnerJob>,
    /// Why the API server has refused the pod.
    pub(super) refused: Option<Error>,
    /// Why pods could not be deleted, by their uids.
    pub(super) undeleted: BTreeMap<String, Error>,
    /// The launch count before, once the API server was asked for its pod; 0 for pods of an earlier PE object.
    pub(super) previous: Option<u64>,
}

impl Answers {
    /// The API server has this PE now, and it is the controller that wrote it.
    pub(super) fn wrote(&mut self, pe: ProcessingElement) {
        self.pe = Some(pe);
        self.is_fresh = true;
    }

    /// The API server has this PE now. Somebody else may have written it, and created the pod that did not exist when
    /// it was looked for. If it is another object of the same name, no answer about the earlier one counts any more.
    pub(super) fn read(&mut self, pe: ProcessingElement) {
        if self.pe.as_ref().is_some_and(|before| before.uid() != pe.uid()) {
            *self = Self::default();
        }
        self.vanished = None;
        self.wrote(pe);
    }
}

/// The status of the PE; the default if there is none yet.
pub(super) fn status(pe: &ProcessingElement) -> ProcessingElementStatus {
    pe.status.clone().unwrap_or_default()
}
