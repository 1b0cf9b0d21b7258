//! Looks at each write before it has its effect, and has it checked by what it is: a status, an object, a deletion.
//!
//! Whatever is written is noted in the journal as well. Writes of a leader that was deposed are not checked.

use super::super::journal::{Journal, keep, note_wanted};
use super::super::services::Services;
use super::super::{JobSimulation, key};
use crate::controllers::job::generation::Generation;
use parking_lot::Mutex;
use std::sync::Arc;
use streams_api::{Job, JobStatus};
use streams_kubernetes_fake::{Call, Server, Verb};

/// What is checked before each write.
struct Inspector {
    server: Server,
    services: Arc<Services>,
    journal: Arc<Mutex<Journal>>,
}

impl JobSimulation {
    /// From now on every write is checked, and written down.
    pub(in super::super) fn watch(&self) {
        let inspector = Inspector {
            server: self.server.clone(),
            services: Arc::clone(&self.services),
            journal: Arc::clone(&self.journal),
        };
        self.server.inspect(move |call| inspector.inspect(call));
        self.note_wanted();
    }
}

impl Inspector {
    fn inspect(&self, call: &Call) {
        let mut journal = self.journal.lock();
        note_wanted(&self.server, &mut journal);
        if !call.verb.is_write() {
            return;
        }
        keep(&self.server, self.services.state(), &mut journal, &call.to_string());
        if journal.is_late {
            return;
        }
        journal.writes.push(call.to_string());
        let Some(job) = self.server.get::<Job>(&key()) else { return };
        let status = job.status.clone().unwrap_or_default();
        let stored = [status.plan.as_ref(), status.proposal.as_ref().map(|proposal| &proposal.plan)];
        let [committed, proposed] = stored.map(|plan| plan.map(|plan| journal.generation(&self.server, plan)));
        let now = Now { server: &self.server, job: &job, status: &status, committed, proposed };
        match call.verb {
            Verb::ReplaceStatus => now.status_is_replaced(call, &mut journal),
            Verb::Apply | Verb::Create => now.object_is_written(call, &journal),
            Verb::Delete => now.object_is_deleted(call, &journal),
            Verb::Get | Verb::List | Verb::Replace | Verb::Merge => {}
        }
    }
}

/// The cluster when a write arrives.
pub(super) struct Now<'a> {
    pub(super) server: &'a Server,
    pub(super) job: &'a Job,
    pub(super) status: &'a JobStatus,
    pub(super) committed: Option<Arc<Generation>>,
    pub(super) proposed: Option<Arc<Generation>>,
}

impl Now<'_> {
    /// The generations that are stored: the committed one, and the proposed one.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        [&self.committed, &self.proposed].into_iter().flatten().map(|generation| &**generation)
    }

    /// A stored generation has exports of this PE.
    pub(super) fn exports(&self, pe: u64) -> bool {
        self.generations().any(|generation| generation.members().any(|(p, _)| p.id == pe && !p.exports.is_empty()))
    }

    /// Nothing of an earlier attempt counts: everything may be deleted.
    pub(super) fn is_clean_slate(&self) -> bool {
        self.status.generation.is_none() && self.status.proposal.is_none()
    }

    /// A stored generation has this PE.
    pub(super) fn has_pe(&self, id: u64) -> bool {
        self.generations().any(|generation| generation.members().any(|(pe, _)| pe.id == id))
    }
}
