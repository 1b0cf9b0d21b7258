//! What processes take: processor time, and memory.

use crate::soak::memory::resident;
use crate::system::System;
use std::collections::BTreeMap;
use std::time::Duration;
use streams_control_plane::process::Process;
use streams_control_plane::{Component, ControlPlane};

/// Linux tells times in these parts of a second.
const PER_SECOND: f64 = 100.0;
/// Name of the frontend.
pub(super) const FRONTEND: &str = "frontend";
/// Name of the API server.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// Name of etcd.
pub(super) const ETCD: &str = "etcd";
/// Name of this process, which plays the PEs.
pub(super) const PES: &str = "all PEs";
/// Name of everything else.
pub(super) const OTHERS: &str = "others";

/// What a process takes, or several of the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Taken {
    pub(super) processor: Duration,
    /// In KiB.
    pub(super) resident: u64,
}

/// What each process takes, by its name.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage(BTreeMap<&'static str, Taken>);

impl Usage {
    /// Now, since all of them were started.
    pub(super) fn now(control_plane: &ControlPlane, system: &System) -> Self {
        let mut usage = Self::default();
        let frontends = system.frontends().iter().map(|frontend| (FRONTEND, frontend.process().id()));
        let fusion = system.fusion().map(|process| (OTHERS, process.id()));
        let components = [
            (API_SERVER, Component::KubeApiserver),
            (ETCD, Component::Etcd),
            (OTHERS, Component::KubeControllerManager),
            (OTHERS, Component::KubeScheduler),
            (OTHERS, Component::Kwok),
        ];
        let components = components
            .into_iter()
            .map(|(name, component)| (name, control_plane.process(component).ok().and_then(Process::id)));
        let this = (PES, Some(std::process::id()));
        for (name, id) in frontends.chain(fusion).chain(components).chain([this]) {
            let Some(id) = id else { continue };
            let taken = usage.0.entry(name).or_default();
            taken.processor += processor(id).unwrap_or_default();
            taken.resident += resident(id).unwrap_or_default();
        }
        usage
    }

    /// Processor time since a moment; memory as it is now.
    pub(super) fn since(&self, before: &Self) -> Self {
        let since = self.0.iter().map(|(name, now)| {
            let processor = now.processor.saturating_sub(before.of(name).processor);
            (*name, Taken { processor, ..*now })
        });
        Self(since.collect())
    }

    /// Of one of them.
    pub(super) fn of(&self, name: &str) -> Taken {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// Processor time of a process, by itself and in the kernel.
fn processor(id: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Behind the name, which may have blanks and brackets: state, 10 numbers, the two times.
    let (_, rest) = text.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    let (own, kernel) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(Duration::from_secs_f64((own + kernel) / PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::processor;
    use std::time::{Duration, Instant};

    #[test]
    fn time_that_is_spent_is_counted() {
        let before = processor(std::process::id()).unwrap();
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {}
        let spent = processor(std::process::id()).unwrap() - before;
        // Other tests run in this process.
        assert!(spent > Duration::ZERO && spent < Duration::from_secs(20), "{spent:?}");
    }
}
