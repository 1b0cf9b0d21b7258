//! The reconciler of jobs as a value: the cluster, the services that it calls, its memory.
//!
//! Knows: what reconciles and long work share. Must not know: how they use it.

use super::memory::Memory;
use super::services::{Bundles, Fusion};
use super::tasks::WorkItem;
use crate::mirrors::Mirrors;
use crate::settings::JobSettings;
use std::fmt;
use std::sync::Arc;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Queue};

/// Brings jobs to the state that their specs describe. Reconciles and long work share it.
pub(super) struct JobReconciler<C> {
    pub(super) cluster: C,
    pub(super) mirrors: Mirrors,
    pub(super) bundles: Arc<dyn Bundles>,
    pub(super) fusion: Arc<dyn Fusion>,
    pub(super) settings: JobSettings,
    pub(super) memory: Memory,
    pub(super) long_work: Queue<WorkItem>,
}

impl<C> fmt::Debug for JobReconciler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobReconciler")
    }
}

impl<C: Cluster> JobReconciler<C> {
    /// A reconciler of the jobs of these mirrors.
    pub(super) fn new(
        cluster: C,
        mirrors: &Mirrors,
        bundles: Arc<dyn Bundles>,
        fusion: Arc<dyn Fusion>,
        settings: JobSettings,
        metrics: &Metrics,
    ) -> Self {
        Self {
            cluster,
            mirrors: mirrors.clone(),
            bundles,
            fusion,
            settings,
            memory: Memory::new(),
            long_work: Queue::new("long_work", BackOff::default(), metrics),
        }
    }
}
