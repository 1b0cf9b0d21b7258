//! What a resize has to know of the PEs that there are, beside the layout: ids and ports that are still in use (rule
//! job-24), and PEs that take no new operators (rule job-55).
//!
//! Knows: the mirrors, the plan that is resized. Must not know: how a resize is compiled.

use super::{Assignment, WorkError};
use crate::controllers::job::generation::Generation;
use crate::controllers::job::memory::plans::Sources;
use crate::controllers::job::observed::ObservedPe;
use crate::controllers::job::observed::mirrored::processing_element;
use crate::controllers::job::off_thread::off_thread_if_many;
use crate::mirrors::{ByOwner as _, Mirrors};
use kube::Resource as _;
use kube::core::ObjectMeta;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::{Job, ProcessingElement, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::watch::Kept;
use streams_proto::fusion::v1::resize_request::PortsInUse;
use streams_proto::fusion::v1::{Fate, Plan, ProcessingElement as Planned};

/// What a resize has to know of the PEs that there are.
#[derive(Debug, Default)]
pub(super) struct ExistingPes {
    /// Ids of PEs that are in use although the layout does not have them.
    pub(super) ids_in_use: Vec<u64>,
    /// Likewise, ports.
    pub(super) ports_in_use: Vec<PortsInUse>,
    /// PEs of the layout that take no new operators.
    pub(super) closed: Vec<u64>,
}

/// What the last look at a job has seen of a PE whose object is as the committed generation wants it.
pub(super) struct AsPlanned {
    id: u64,
    is_closed: bool,
}

/// What becomes of PEs that the mirror does not have.
#[derive(Debug, Default)]
struct Absent {
    /// The job is submitted: whichever may not be restarted is not made again (rule job-27).
    is_submitted: bool,
    /// PEs that are there nevertheless: they were written, and the mirror is behind; or nobody can read them.
    are_there: BTreeSet<u64>,
}

impl Absent {
    /// Whether this one, which a user has deleted, is not made again.
    fn stays_away(&self, pe: &Planned) -> bool {
        self.is_submitted && !pe.restartable
    }
}

/// Looks at the PEs that exist: those of the plan, those that are being removed, and pods that outlive their PE. A new
/// PE with the id of a pod that is being terminated would have to wait for it. `last_seen`: what is known of an object
/// that is as planned; it is not read. `written`: PEs that are there although the mirror may not show them yet. Many
/// are read on a thread that serves nobody else.
///
/// # Errors
/// Reading panicked.
pub(super) async fn existing_pes(
    mirrors: &Mirrors,
    key: &Key,
    job: &Job,
    of: &Arc<Generation>,
    last_seen: impl Fn(&Key, &Kept<ProcessingElement>) -> Option<AsPlanned>,
    written: BTreeSet<u64>,
) -> Result<ExistingPes, WorkError> {
    let (mut as_planned, mut unknown) = (Vec::new(), Vec::new());
    for (name, pe) in mirrors.processing_elements.kept_of_job(key) {
        match last_seen(&name, &pe) {
            Some(seen) => as_planned.push(seen),
            None => unknown.push(pe),
        }
    }
    let pods = mirrors.pods.kept_of_job(key);
    let uid = job.metadata.uid.clone();
    let status = job.status.as_ref();
    let is_submitted = status.is_some_and(|status| condition::is_true(&status.conditions, condition::SUBMITTED));
    let others = of.plan.processing_elements.iter().filter(|pe| !pe.restartable).map(|pe| pe.id);
    let unreadable = others.filter(|id| mirrors.has_unreadable_pe(key, *id));
    let absent = Absent { is_submitted, are_there: unreadable.chain(written).collect() };
    let (name, of) = (Arc::clone(&key.name), Arc::clone(of));
    let existing = off_thread_if_many(unknown.len().saturating_add(pods.len()), move || {
        let is_ours = |pe: &Arc<ProcessingElement>| {
            uid.is_some() && controller(&pe.metadata).map(|owner| &owner.uid) == uid.as_ref() && !pe.is_copy()
        };
        let pes = unknown.into_iter().filter_map(|pe| pe.read()).filter(is_ours);
        let pods = pods.into_iter().filter_map(|(_, pod)| pod.metadata());
        beside(&of.plan, &as_planned, pes, pods.filter_map(|pod| pe_id(&pod, &name)), &absent)
    });
    existing.await.map_err(|error| WorkError::transient("Internal", error.to_string()))
}

/// What the last look at the job has seen of PEs to which was applied what the committed generation wants.
pub(super) fn last_seen<C: Cluster>(
    Assignment { reconciler, key, job, uid }: &Assignment<'_, C>,
) -> impl Fn(&Key, &Kept<ProcessingElement>) -> Option<AsPlanned> + use<C> {
    let plan = job.status.as_ref().and_then(|status| status.plan.as_ref());
    let spec_generation = job.metadata.generation.unwrap_or_default();
    let wanted = plan.and_then(|plan| {
        let wanted = reconciler.memory.find(key, uid, |entry| {
            let in_force = entry.in_force.as_ref().filter(|(of, _)| *of == spec_generation);
            entry.plans.wanted(&plan.sha256, &Sources::of(job, in_force.is_some()))
        });
        wanted.flatten()
    });
    let known = wanted.zip(reconciler.last_look(key, uid));
    let job = (*key).clone();
    move |name, pe| {
        let (wanted, look) = known.as_ref()?;
        let (id, seen) = look.processing_element(&job, name, pe)?;
        let desired = wanted.processing_elements.get(&id);
        let texts = desired.into_iter().flat_map(|desired| [Some(&desired.text), desired.carried.as_ref()]);
        let is_as_planned =
            texts.flatten().any(|text| seen.applied.as_deref() == Some(text.processing_element.as_str()));
        let is_closed = is_closed(seen.observed())?;
        is_as_planned.then_some(AsPlanned { id, is_closed })
    }
}

/// PEs of the job that were written and that the mirror may not show yet.
pub(super) fn just_written<C>(Assignment { reconciler, key, uid, .. }: &Assignment<'_, C>) -> BTreeSet<u64> {
    let written = reconciler.memory.find(key, uid, |entry| entry.own_writes.processing_elements().collect());
    written.unwrap_or_default()
}

/// Whether the PE does not run again by itself: it has completed, or a user has stopped it (rule job-55). `None` if it
/// is being deleted: whether it is made again decides.
fn is_closed(pe: &ObservedPe) -> Option<bool> {
    (!pe.object.deleting).then_some(pe.has_completed || pe.is_stopped)
}

/// Id of the PE that the pod was created for, whether that still exists or not.
fn pe_id(pod: &ObjectMeta, job: &str) -> Option<u64> {
    let id = pod.labels.as_ref()?.get(names::LABEL_PE)?.parse().ok()?;
    let mut controllers = pod.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let kind = ProcessingElement::kind(&());
    let is_of_pe = controllers.any(|owner| owner.kind == kind && owner.name == names::processing_element(job, id));
    is_of_pe.then_some(id)
}

/// What these PEs and pods are beside the plan. `absent`: what becomes of PEs that are not among them.
fn beside(
    plan: &Plan,
    as_planned: &[AsPlanned],
    pes: impl Iterator<Item: Borrow<ProcessingElement>>,
    pods: impl Iterator<Item = u64>,
    absent: &Absent,
) -> ExistingPes {
    let mut existing = ExistingPes::default();
    let planned: BTreeMap<u64, _> =
        plan.processing_elements.iter().filter(|pe| pe.fate() != Fate::Removed).map(|pe| (pe.id, pe)).collect();
    existing.ids_in_use.extend(pods.filter(|id| !planned.contains_key(id)));
    let mut closed: BTreeMap<u64, bool> = as_planned.iter().map(|seen| (seen.id, seen.is_closed)).collect();
    for pe in pes {
        let pe = pe.borrow();
        let Some(planned) = planned.get(&pe.spec.id) else {
            existing.ids_in_use.push(pe.spec.id);
            continue;
        };
        let is_closed = is_closed(&processing_element(pe)).unwrap_or_else(|| absent.stays_away(planned));
        closed.insert(pe.spec.id, is_closed);
        let inputs: Vec<u32> = planned.port_labels.iter().map(|label| label.port_id).collect();
        let outputs: Vec<u32> = planned.exports.iter().map(|export| export.port_id).collect();
        let only_in = |existing: &[u32], planned: &[u32]| {
            // The fusion service refuses an id that is there twice, and users can write into a PE.
            let ports: BTreeSet<u32> = existing.iter().copied().filter(|port| !planned.contains(port)).collect();
            ports.into_iter().collect::<Vec<_>>()
        };
        let input_port_ids = only_in(&pe.spec.input_ports, &inputs);
        let output_port_ids = only_in(&pe.spec.exported_ports, &outputs);
        if !input_port_ids.is_empty() || !output_port_ids.is_empty() {
            existing.ports_in_use.push(PortsInUse { pe_id: pe.spec.id, input_port_ids, output_port_ids });
        }
    }
    let is_gone = |pe: &Planned| absent.stays_away(pe) && !absent.are_there.contains(&pe.id);
    let is_closed = |(id, pe): &(&u64, &&Planned)| closed.get(id).copied().unwrap_or_else(|| is_gone(pe));
    existing.closed = planned.iter().filter(is_closed).map(|(id, _)| *id).collect();
    existing.ids_in_use.sort_unstable();
    existing.ids_in_use.dedup();
    existing.ports_in_use.sort_by_key(|ports| ports.pe_id);
    existing
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use streams_api::{PePhase, ProcessingElementSpec, ProcessingElementStatus};
    use streams_proto::fusion::v1::{Export, PortLabel};

    fn planned_pe(id: u64, fate: Fate, ports: &[u32]) -> Planned {
        let port_labels = ports.iter().map(|port_id| PortLabel { port_id: *port_id, ..PortLabel::default() }).collect();
        Planned { id, fate: fate.into(), port_labels, size: 100, ..Planned::default() }
    }

    fn object(id: u64, inputs: &[u32], exports: &[u32]) -> ProcessingElement {
        let spec = ProcessingElementSpec {
            id,
            input_ports: inputs.to_vec(),
            exported_ports: exports.to_vec(),
            ..ProcessingElementSpec::default()
        };
        ProcessingElement::new("pe", spec)
    }

    #[test]
    fn ids_and_ports_of_objects_that_lag_behind_are_in_use() {
        let mut exporting = planned_pe(1, Fate::Restarted, &[0, 1]);
        exporting.exports = vec![Export { port_id: 4, ..Export::default() }];
        let plan = Plan {
            processing_elements: vec![planned_pe(0, Fate::Kept, &[0]), exporting, planned_pe(2, Fate::Removed, &[])],
            ..Plan::default()
        };
        let objects =
            [object(7, &[0], &[]), object(2, &[0], &[]), object(0, &[0], &[]), object(1, &[0, 2, 2], &[5, 4, 5])];
        // Of PEs that are gone, of one that goes, and of one that stays.
        let pods = [9, 5, 9, 2, 0];
        let existing = beside(&plan, &[], objects.iter(), pods.into_iter(), &Absent::default());
        assert_eq!(existing.ids_in_use, [2, 5, 7, 9]);
        let ports = PortsInUse { pe_id: 1, input_port_ids: vec![2], output_port_ids: vec![5] };
        assert_eq!(existing.ports_in_use, [ports]);
        assert!(existing.closed.is_empty());
    }

    #[test]
    fn pes_that_do_not_run_again_by_themselves_are_closed() {
        let in_phase = |phase, stopped| {
            let mut pe = object(3, &[], &[]);
            pe.status = Some(ProcessingElementStatus { phase: Some(phase), stopped, ..Default::default() });
            pe
        };
        let changed = |mut pe: ProcessingElement, change: fn(&mut ObjectMeta)| {
            change(&mut pe.metadata);
            pe
        };
        let restart = |meta: &mut ObjectMeta| {
            let wanted = (names::ANNOTATION_RESTART_REQUESTED.to_owned(), "again".to_owned());
            meta.annotations = Some([wanted].into());
        };
        let delete = |meta: &mut ObjectMeta| meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let completed = || in_phase(PePhase::Completed, false);
        // the PE, whether it may be restarted -> closed
        let table = [
            (Some(in_phase(PePhase::Running, false)), true, false),
            (Some(completed()), true, true),
            (Some(in_phase(PePhase::Stopped, true)), true, true),
            // They get another pod as soon as they have another text, or when the job is resumed.
            (Some(in_phase(PePhase::Failed, false)), false, false),
            (Some(in_phase(PePhase::Stopped, false)), false, false),
            (Some(in_phase(PePhase::Suspended, false)), true, false),
            // A user has asked for another pod.
            (Some(changed(completed(), restart)), true, false),
            // They are made again, or are not.
            (Some(changed(completed(), delete)), true, false),
            (Some(changed(completed(), delete)), false, true),
            (None, true, false),
            (None, false, true),
        ];
        for (pe, restartable, expected) in table {
            let planned = Planned { restartable, ..planned_pe(3, Fate::Kept, &[]) };
            let plan = Plan { processing_elements: vec![planned], ..Plan::default() };
            let is_closed = |seen: &[AsPlanned], pe: Option<&ProcessingElement>, is_submitted, written: &[u64]| {
                let absent = Absent { is_submitted, are_there: written.iter().copied().collect() };
                let others = [object(4, &[], &[])];
                let existing = beside(&plan, seen, pe.into_iter().chain(&others), std::iter::empty(), &absent);
                existing.closed == [3]
            };
            assert_eq!(is_closed(&[], pe.as_ref(), true, &[4]), expected, "{pe:?} {restartable}");
            let seen = [AsPlanned { id: 3, is_closed: expected }];
            assert_eq!(is_closed(&seen, None, true, &[]), expected, "{pe:?} {restartable} was seen");
            // Whatever is missing is made again while the job is being submitted.
            let is_missing = pe.as_ref().is_none_or(|pe| pe.metadata.deletion_timestamp.is_some());
            assert_eq!(is_closed(&[], pe.as_ref(), false, &[]), expected && !is_missing, "{pe:?} {restartable}");
            // The mirror is behind if it does not have what was written.
            assert_eq!(is_closed(&[], pe.as_ref(), true, &[3]), expected && pe.is_some(), "{pe:?} {restartable}");
        }
    }

    #[test]
    fn the_id_of_a_pod_is_that_of_the_pe_that_controls_it() {
        // label, kind, name and controller of the owner -> id
        let table = [
            ("3", "ProcessingElement", "flow-3", true, Some(3)),
            ("3", "ProcessingElement", "flow-3", false, None),
            ("3", "ProcessingElement", "flow-4", true, None),
            ("3", "ReplicaSet", "flow-3", true, None),
            ("three", "ProcessingElement", "flow-three", true, None),
        ];
        for (label, kind, owner, controller, expected) in table {
            let version = "streams.ibm.com/v1";
            let owner_reference =
                json!({"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": controller});
            let owners = json!([owner_reference]);
            let metadata = json!({"labels": {names::LABEL_PE: label}, "ownerReferences": owners});
            let pod: ObjectMeta = serde_json::from_value(metadata).unwrap();
            assert_eq!(pe_id(&pod, "flow"), expected, "{label} {kind} {owner} {controller}");
        }
    }
}
