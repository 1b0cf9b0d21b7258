//! Long work, the PE controller, the user, time.

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;

use super::{Crashed, Region, World, create};
use crate::controllers::job::{
    chunks::Document,
    observed::Run,
    tasks::{Failure, PublishRequest, Remedy, Slot},
};
use streams_api::{JobPhase, RequestedWidth, RequestedWidths, StoredAdl};

impl World {
    /// Long work that is going on comes to its end. Says whether there was any.
    pub(in super::super) fn finish_work(&mut self, fails: bool) -> Result<bool, Crashed> {
        let retry = Remedy::Retry(self.now.checked_add(SignedDuration::from_secs(5)).unwrap());
        let fails = fails || self.services_down;
        let work = self.memory.tasks.clone();
        if let Slot::Running(key) = work.fetch {
            let fetched = if fails { None } else { self.fetch(key)? };
            self.memory.tasks.fetch = fetched.map_or(Slot::Failed(key, failure(retry)), |adl| Slot::Done(key, adl));
        } else if let Slot::Running(key) = work.compile {
            self.memory.tasks.compile = if fails {
                Slot::Failed(key, failure(retry))
            } else if self.broken {
                Slot::Failed(key, failure(Remedy::Correct))
            } else {
                match self.compile(&key)? {
                    Some(compiled) => Slot::Done(key, compiled),
                    None => Slot::Failed(key, failure(retry)),
                }
            };
        } else if let Slot::Running(key) = work.publish {
            self.memory.tasks.publish = self.publish(key, fails, retry)?;
        } else if let Slot::Running(key) = work.repair {
            self.memory.tasks.repair = self.publish(key, fails, retry)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn fetch(&mut self, spec_generation: i64) -> Result<Option<StoredAdl>, Crashed> {
        let sha256 = format!("{:0>64}", self.spec.1);
        let adl =
            StoredAdl { sha256: sha256.clone(), chunks: 1, size: 1, sab_name: "a.sab".to_owned(), spec_generation };
        if !create(&mut self.children.chunks, Document::Adl.chunk_name("job", &sha256, 0)) {
            return Ok(None);
        }
        self.wrote("adl chunk".to_owned())?;
        Ok(Some(adl))
    }

    fn publish(
        &mut self,
        key: PublishRequest,
        fails: bool,
        retry: Remedy,
    ) -> Result<Slot<PublishRequest, ()>, Crashed> {
        if fails {
            return Ok(Slot::Failed(key, failure(retry)));
        }
        let Some((wanted, _)) = self.plans.get(&key.plan) else { return Ok(Slot::Failed(key, failure(retry))) };
        let wanted = Arc::clone(wanted);
        let compiler = wanted.statistics.aadl_bytes.to_string();
        if compiler != self.compiler {
            return Ok(Slot::Failed(key, failure(Remedy::Recompile)));
        }
        for id in &key.pe_ids {
            if !create(&mut self.children.texts, wanted.processing_elements[id].text.config_map.clone()) {
                return Ok(Slot::Failed(key, failure(retry)));
            }
            self.wrote(format!("text of PE {id}"))?;
        }
        // The work is forgotten once its texts are seen; a text that is deleted later is written again.
        Ok(Slot::Idle)
    }

    /// Whether texts of the proposal are being written.
    pub(in super::super) fn publishing(&self) -> bool {
        matches!(self.memory.tasks.publish, Slot::Running(_))
    }

    /// Names of the texts that are being written.
    pub(in super::super) fn texts_asked_for(&self) -> Vec<String> {
        let Slot::Running(publish) = &self.memory.tasks.publish else { return Vec::new() };
        let wanted = &self.plans[&publish.plan].0;
        publish.pe_ids.iter().map(|id| wanted.processing_elements[id].text.config_map.clone()).collect()
    }

    /// The PE controller: pods of committed generations are started.
    pub(in super::super) fn run_pods(&mut self) -> bool {
        let Some(committed) = self.status.generation else { return false };
        let mut changed = false;
        for (id, pe) in &mut self.children.processing_elements {
            if pe.generation <= committed && !pe.object.deleting && pe.run == Run::Pending {
                pe.launched = true;
                pe.run = Run::Ready;
                *self.starts.entry(*id).or_default() += 1;
                changed = true;
            }
        }
        changed
    }

    /// The user.
    pub(in super::super) fn resize(&mut self, index: u64, width: u32) {
        self.set_width(index, width);
        self.want();
    }

    pub(super) fn set_width(&mut self, index: u64, width: u32) {
        if let Some(region) = self.regions.get_mut(&index).filter(|region| region.width != width) {
            region.width = width;
            region.generation += 1;
        }
    }

    /// A request for several regions, once the one before was taken over; not for regions that are not there.
    pub(in super::super) fn resize_both(&mut self, widths: [u32; 2]) {
        let busy = self.regions.values().any(|region| self.pending(region).is_some());
        if busy || self.regions.len() != widths.len() {
            return;
        }
        let requested = self.regions.values().zip(widths).map(|(region, width)| RequestedWidth {
            region: region.name.to_owned(),
            width,
            uid: region.uid.clone(),
            generation: region.generation,
        });
        self.requested = RequestedWidths { widths: requested.collect(), trace_parent: None };
        self.want();
    }

    /// The width of the request that the region is still to take over.
    pub(super) fn pending(&self, region: &Region) -> Option<u32> {
        let requested = &self.requested.widths;
        let pending = requested.iter().find(|one| one.is_pending(&region.uid, region.generation, region.width));
        pending.map(|one| one.width)
    }

    /// Somebody other than the controller has changed what is wanted.
    pub(super) fn want(&mut self) {
        // Looking must not change what the process knows.
        let wanted = self.clone().observe().desired_widths;
        self.wanted_widths.push(wanted);
    }

    pub(in super::super) fn edit(&mut self, inputs: &str, broken: bool) {
        assert!(self.status.generation.is_none(), "the schema refuses it");
        self.spec = (self.spec.0 + 1, inputs.to_owned());
        self.broken = broken;
    }

    pub(in super::super) fn failed(&self) -> bool {
        self.status.phase == Some(JobPhase::Failed)
    }

    /// Everything runs until nothing happens any more.
    pub(in super::super) fn settle(&mut self) {
        for _ in 0..1_000 {
            let before = (self.writes, self.memory.tasks.clone());
            let Ok(report) = self.step(|_| true) else { continue };
            let Ok(worked) = self.finish_work(false) else { continue };
            let moved = self.run_pods() | self.collect();
            if worked || moved || before != (self.writes, self.memory.tasks.clone()) {
                continue;
            }
            match report.wake_at.filter(|at| *at > self.now) {
                // What is waited for comes with time alone.
                Some(at) if report.trouble.is_some() || self.status.generation.is_none() => self.now = at,
                _ => return,
            }
        }
        panic!(
            "it does not come to rest; the end of the log: {:#?}",
            self.log.iter().rev().take(30).collect::<Vec<_>>()
        );
    }
}

fn failure(remedy: Remedy) -> Failure {
    Failure { remedy, reason: "Broken".to_owned(), message: "it is broken".to_owned(), stage: None, code: None }
}
