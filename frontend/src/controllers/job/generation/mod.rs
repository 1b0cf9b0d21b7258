//! One generation of a job: its plan, and what was decided together with it.
//!
//! With a [`Generation`], the ADL and the objects in the namespace, a frontend that has just started goes on where
//! another one stopped (rule job-9).
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the generation, and how one follows another |
//! | [`stored`] | the form in which it is stored |
//! | [`added_ports`] | since which generation a job exports and imports at its ports |
//! | [`places`], [`missing_nodes`] | where its PEs must run, and together with which; nodes that do not exist |
//! | [`regions`] | what the status says of its regions |
//!
//! Knows: plans of the fusion service, and how one follows another. Must not know: chunks, objects.
//!
//! Invariants (checked by [`Generation::decode`], established by [`Generation::following`]):
//! * every PE of the plan that is not removed has exactly one [`Origin`];
//! * the origin of a PE names the text that it was last started with, so whether a PE must be replaced follows from its
//!   object and its origin alone, whatever happened in between.

pub(super) mod added_ports;
pub(super) mod missing_nodes;
pub(super) mod places;
pub(crate) mod regions;
mod stored;

use self::added_ports::AddedPorts;
use self::places::{groups, host_pool, members, place, tokens};
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use streams_api::{JobStatus, ResizeChanges, TransportSecurity};
use streams_proto::fusion::v1::{ChannelCount, Compilation, Fate, HostPool, Plan, ProcessingElement, Warning};

/// Why a PE restarts whose text stays, for people.
const MOVED: &str = "it must run somewhere else";

/// What a generation was compiled for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// The first generation: the digest of everything in the job's spec that compilation depends on.
    Submission {
        /// Digest of the compilation's inputs.
        inputs: String,
    },
    /// A later one: the desired widths of all regions by name.
    Resize {
        /// Widths by name of the region.
        widths: BTreeMap<String, u32>,
        /// Operators are distributed anew.
        rebalances: bool,
    },
}

/// A plan and what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Generation {
    /// Number in the life of the job, from 0.
    pub(crate) number: u64,
    /// What was compiled; the ADL without its content.
    pub(crate) compilation: Compilation,
    /// The result.
    pub(crate) plan: Plan,
    /// The target of the compilation.
    pub(crate) target: Target,
    /// By PE id.
    pub(crate) origins: BTreeMap<u64, Origin>,
    /// Node names by the addresses that the application names hosts by.
    pub(crate) nodes: BTreeMap<String, String>,
    /// What users should know although the compilation succeeded.
    pub(crate) warnings: Vec<Warning>,
    /// Trace context of the request that it was made for; empty without tracing.
    pub(crate) trace_parent: String,
    /// What was settled at the submission.
    pub(crate) settled: Settled,
    /// Ports that later generations than the first one have added.
    pub(crate) added_ports: AddedPorts,
    /// The stored form has no groups: an earlier frontend has written it.
    pub(super) stores_no_groups: bool,
}

/// What is settled at the submission, and stays as long as the job runs (rule job-46).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The redis servers of checkpoints, as the runtime wants to be told of them; empty if none are kept there.
    pub(crate) redis: String,
    /// Whether PEs secure their connections.
    pub(crate) transport: TransportSecurity,
}

/// The parts of a generation beside its plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct GenerationDetails {
    /// See [`Generation::nodes`].
    pub(crate) nodes: BTreeMap<String, String>,
    /// See [`Generation::warnings`].
    pub(crate) warnings: Vec<Warning>,
    /// See [`Generation::trace_parent`].
    pub(crate) trace_parent: String,
    /// Of the first generation; later ones have that of the one before.
    pub(crate) settled: Settled,
}

/// The text that a PE was last started with (rule job-10). Later texts of the PE, if any, differ only in what a running
/// PE does not observe; the origin says since when it has the newest of them.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Origin {
    /// Id of the PE.
    #[prost(uint64, tag = "1")]
    pub(crate) pe_id: u64,
    /// Generation that it started with.
    #[prost(uint64, tag = "2")]
    pub(crate) generation: u64,
    /// Content id of the text.
    #[prost(string, tag = "3")]
    pub(crate) content_id: String,
    /// Runtime id of the text.
    #[prost(string, tag = "4")]
    pub(crate) runtime_id: String,
    /// Bytes of the text.
    #[prost(uint64, tag = "5")]
    pub(crate) size: u64,
    /// Number of PEs of that generation. Nothing here reads it: a frontend that may lead again, from before rule pod-4
    /// was what it is, divides by it.
    #[prost(uint32, tag = "6")]
    pub(crate) share_of: u32,
    /// Trace context of that generation.
    #[prost(string, tag = "7")]
    pub(crate) trace_parent: String,
    /// Generation that changed the text of the PE last; 0 if an earlier frontend has stored the plan.
    #[prost(uint64, tag = "8")]
    pub(crate) text_generation: u64,
    /// Key of the label of the group that the PE is in (rule placement-7); empty if it is that of its only token, or if
    /// it is in none.
    #[prost(string, tag = "9")]
    pub(crate) group: String,
    /// Generation that moved the PE last because it brought its group together with others; 0 if none has.
    #[prost(uint64, tag = "10")]
    pub(crate) joined: u64,
}

/// Number of the generation that is being prepared for a job.
pub(super) fn next_generation(status: &JobStatus) -> u64 {
    status.generation.map_or(0, |generation| generation.saturating_add(1))
}

impl Generation {
    /// The generation after `previous`, or the first one.
    pub(crate) fn following(
        previous: Option<&Self>,
        target: Target,
        mut compilation: Compilation,
        mut plan: Plan,
        circumstances: GenerationDetails,
    ) -> Self {
        let GenerationDetails { nodes, warnings, trace_parent, settled } = circumstances;
        // Pods are kept apart by what they want themselves. Each PE has the labels of all others: in memory they would
        // take more than all the rest.
        for placement in plan.processing_elements.iter_mut().filter_map(|pe| pe.placement.as_mut()) {
            placement.isolation_labels = Vec::new();
        }
        if let Some(previous) = previous {
            restart(&mut plan, |plan, pe| {
                let Some((before, _)) = previous.member(pe.id) else { return false };
                place(&previous.plan, &previous.nodes, before) != place(plan, &nodes, pe)
            });
        }
        let is_put_by = |pe: &ProcessingElement| previous.map(|before| before.is_put_by(pe.id)).unwrap_or_default();
        let groups = groups(&plan, is_put_by, is_kept);
        restart(&mut plan, |_, pe| groups.moved.contains(&pe.id));
        let settled = previous.map_or(settled, |previous| previous.settled.clone());
        let number = previous.map_or(0, |previous| previous.number.saturating_add(1));
        let share_of = u32::try_from(members(&plan).count()).unwrap_or(u32::MAX);
        let origin = |pe: &ProcessingElement| {
            let before = previous.and_then(|previous| previous.member(pe.id));
            let has_same_text = |(before, _): &(&ProcessingElement, &Origin)| before.content_id == pe.content_id;
            let text_generation = before.filter(has_same_text).map_or(number, |(_, origin)| origin.text_generation);
            let group = groups.labels.get(&pe.id).cloned().unwrap_or_default();
            let joined = if groups.moved.contains(&pe.id) { number } else { before.map_or(0, |(_, o)| o.joined) };
            let inherited = before.filter(|_| is_kept(pe)).map(|(_, origin)| origin.clone());
            let inherited = inherited.map(|origin| Origin { text_generation, group: group.clone(), joined, ..origin });
            inherited.unwrap_or_else(|| Origin {
                pe_id: pe.id,
                generation: number,
                content_id: pe.content_id.clone(),
                runtime_id: pe.runtime_id.clone(),
                size: pe.size,
                share_of,
                trace_parent: trace_parent.clone(),
                text_generation,
                group,
                joined,
            })
        };
        let origins = members(&plan).map(|pe| (pe.id, origin(pe))).collect();
        let added_ports = previous.map(|previous| previous.added_ports.following(&previous.plan, &plan, number));
        let added_ports = added_ports.unwrap_or_default();
        if let Some(adl) = &mut compilation.adl {
            adl.content = None;
        }
        // Copies: a part of an answer keeps all of it.
        for part in [&mut plan.layout, &mut plan.adl_sha256] {
            *part = Bytes::copy_from_slice(part);
        }
        Self {
            number,
            compilation,
            plan,
            target,
            origins,
            nodes,
            warnings,
            trace_parent,
            settled,
            added_ports,
            stores_no_groups: false,
        }
    }

    /// The PEs of this generation with their origins, ascending id.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&ProcessingElement, &Origin)> {
        members(&self.plan).filter_map(|pe| Some((pe, self.origins.get(&pe.id)?)))
    }

    /// The PE with this id and its origin, if the generation has it.
    pub(crate) fn member(&self, id: u64) -> Option<(&ProcessingElement, &Origin)> {
        let pes = &self.plan.processing_elements;
        let sorted = pes.binary_search_by_key(&id, |pe| pe.id).ok().and_then(|at| pes.get(at));
        let pe = sorted.filter(|pe| pe.fate() != Fate::Removed);
        pe.and_then(|pe| Some((pe, self.origins.get(&id)?))).or_else(|| self.members().find(|(pe, _)| pe.id == id))
    }

    /// The host pool with this index, if the generation has it.
    pub(crate) fn host_pool(&self, index: u64) -> Option<&HostPool> {
        host_pool(&self.plan, index)
    }

    /// Keys of the labels by which the pod of a PE is put together with others.
    fn is_put_by(&self, id: u64) -> BTreeSet<String> {
        match self.member(id) {
            Some((_, origin)) if !origin.group.is_empty() => [origin.group.clone()].into(),
            Some((pe, _)) => tokens(&self.plan, pe),
            None => BTreeSet::new(),
        }
    }

    /// How many equal parts there are of job-wide resources: one for each PE (rule pod-4).
    pub(crate) fn shares(&self) -> NonZeroU32 {
        let pes = u32::try_from(self.origins.len()).unwrap_or(u32::MAX);
        NonZeroU32::new(pes).unwrap_or(NonZeroU32::MIN)
    }

    /// Widths in force, by name of the region.
    pub(crate) fn widths(&self) -> BTreeMap<String, u32> {
        self.plan.parallel_regions.iter().map(|region| (region.name.clone(), region.width)).collect()
    }

    /// The user says of a region that nobody asks for the number of its channels (rule aadl-22).
    pub(crate) fn ignores_channels(&self) -> bool {
        self.plan.parallel_regions.iter().any(|region| region.channel_count() == ChannelCount::Ignored)
    }

    /// What it does to the PEs of the one before.
    pub(crate) fn changes(&self) -> ResizeChanges {
        ResizeChanges {
            kept: self.count(&[Fate::Kept, Fate::KeptUnobservable]),
            restarted: self.count(&[Fate::Restarted]),
            added: self.count(&[Fate::Added]),
            removed: self.count(&[Fate::Removed]),
        }
    }

    /// How many PEs have one of these fates.
    pub(crate) fn count(&self, fates: &[Fate]) -> u32 {
        let count = self.plan.processing_elements.iter().filter(|pe| fates.contains(&pe.fate())).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The compiler looks at the texts of PEs only. One that keeps its text, and must run somewhere else, is restarted as
/// well (rule placement-9).
fn restart(plan: &mut Plan, moves: impl Fn(&Plan, &ProcessingElement) -> bool) {
    let all = plan.processing_elements.iter().enumerate();
    let moved: Vec<usize> = all.filter(|(_, pe)| is_kept(pe) && moves(plan, pe)).map(|(at, _)| at).collect();
    for at in moved {
        if let Some(pe) = plan.processing_elements.get_mut(at) {
            pe.set_fate(Fate::Restarted);
            MOVED.clone_into(&mut pe.reason);
        }
    }
}

fn is_kept(pe: &ProcessingElement) -> bool {
    matches!(pe.fate(), Fate::Kept | Fate::KeptUnobservable)
}

#[cfg(test)]
mod tests {
    use super::stored::{FORMAT, StoredGeneration};
    use super::*;
    use crate::controllers::token_labels::{Kind, key};
    use streams_proto::fusion::v1::placement::Pool;
    use streams_proto::fusion::v1::{Blob, Placement};

    fn pe(id: u64, fate: Fate, content: &str, runtime: &str) -> ProcessingElement {
        ProcessingElement {
            id,
            fate: fate as i32,
            content_id: content.to_owned(),
            runtime_id: runtime.to_owned(),
            size: 10,
            ..Default::default()
        }
    }

    fn following(previous: Option<&Generation>, pes: Vec<ProcessingElement>) -> Generation {
        let plan = Plan { processing_elements: pes, ..Default::default() };
        let adl = Some(Blob { sha256: vec![1; 32].into(), content: Some(b"<adl/>".to_vec().into()) });
        let compilation = Compilation { adl, ..Default::default() };
        let target = Target::Resize { widths: BTreeMap::from([("R".to_owned(), 3)]), rebalances: true };
        Generation::following(previous, target, compilation, plan, GenerationDetails::default())
    }

    #[test]
    fn a_pe_has_its_newest_text_since_the_generation_that_changed_it() {
        use Fate::{Added, Kept, KeptUnobservable, Restarted};
        // what becomes of it, its text -> since when it has that
        let table = [
            (Added, "a", 0),
            (Kept, "a", 0),
            (KeptUnobservable, "b", 2),
            (Kept, "b", 2),
            (KeptUnobservable, "a", 4),
            (Restarted, "a", 4),
            (Restarted, "c", 6),
        ];
        let mut last = None;
        for (fate, content, expected) in table {
            let next = following(last.as_ref(), vec![pe(0, fate, content, "r0")]);
            assert_eq!(next.origins[&0].text_generation, expected, "generation {}", next.number);
            last = Some(next);
        }
    }

    /// (PE, generation of its origin, content of its origin, share)
    fn origins(generation: &Generation) -> Vec<(u64, u64, &str, u32)> {
        generation.members().map(|(pe, o)| (pe.id, o.generation, o.content_id.as_str(), o.share_of)).collect()
    }

    #[test]
    fn a_pe_keeps_its_origin_until_it_has_to_restart() {
        let first = following(None, vec![pe(0, Fate::Added, "a0", "r0"), pe(1, Fate::Added, "a1", "r1")]);
        assert_eq!(first.number, 0);
        assert_eq!(origins(&first), [(0, 0, "a0", 2), (1, 0, "a1", 2)]);

        let second = following(
            Some(&first),
            vec![
                pe(0, Fate::KeptUnobservable, "b0", "r0"),
                pe(1, Fate::Restarted, "b1", "q1"),
                pe(2, Fate::Added, "b2", "r2"),
            ],
        );
        assert_eq!(origins(&second), [(0, 0, "a0", 2), (1, 1, "b1", 3), (2, 1, "b2", 3)]);

        let third = following(
            Some(&second),
            vec![pe(0, Fate::Kept, "b0", "r0"), pe(1, Fate::Kept, "b1", "q1"), pe(2, Fate::Removed, "b2", "r2")],
        );
        assert_eq!(third.number, 2);
        assert_eq!(origins(&third), [(0, 0, "a0", 2), (1, 1, "b1", 3)]);
        assert_eq!(third.count(&[Fate::Kept, Fate::KeptUnobservable]), 2);
        assert_eq!([first, second, third].map(|generation| generation.shares().get()), [2, 3, 2]);
    }

    #[test]
    fn a_pe_that_must_run_somewhere_else_restarts_though_its_text_stays() {
        let placed = |host: Option<&str>, pool: Option<u64>| Placement {
            host: host.map(str::to_owned),
            pool: pool.map(|index| Pool { index, in_pool_index: None }),
            ..Placement::default()
        };
        let pool = |index, hosts: &[&str], exclusive| HostPool {
            index,
            name: index.to_string(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            exclusive,
            ..HostPool::default()
        };
        let generation = |previous: Option<&Generation>, fate, placement: Option<Placement>, pools, node: &str| {
            let pe = ProcessingElement { placement, ..pe(0, fate, "a0", "r0") };
            let plan = Plan { processing_elements: vec![pe], host_pools: pools, ..Plan::default() };
            let target = Target::Submission { inputs: String::new() };
            let nodes = BTreeMap::from([("10.0.0.1".to_owned(), node.to_owned())]);
            let details = GenerationDetails { nodes, ..GenerationDetails::default() };
            Generation::following(previous, target, Compilation::default(), plan, details)
        };
        let pools = || vec![pool(0, &["10.0.0.1", "b"], false), pool(1, &["c"], false)];
        let renamed = HostPool { name: "other".to_owned(), size: Some(9), ..pool(0, &["10.0.0.1", "b"], false) };
        let unseen = Placement { isolation_labels: vec!["o".to_owned()], ..Placement::default() };
        // before, after, pools after, node of the address after -> the PE is restarted
        let table = [
            (None, None, pools(), "a", false),
            (None, Some(Placement::default()), pools(), "a", false),
            (None, Some(unseen), pools(), "a", false),
            (None, Some(placed(Some("b"), None)), pools(), "a", true),
            (Some(placed(Some("b"), None)), Some(placed(Some("b"), None)), pools(), "z", false),
            (Some(placed(Some("10.0.0.1"), None)), Some(placed(Some("10.0.0.1"), None)), pools(), "z", true),
            (Some(placed(None, Some(0))), Some(placed(None, Some(0))), pools(), "a", false),
            (Some(placed(None, Some(0))), Some(placed(None, Some(0))), pools(), "z", true),
            (Some(placed(None, Some(0))), Some(placed(None, Some(1))), pools(), "a", true),
            (Some(placed(None, Some(0))), Some(placed(None, Some(0))), vec![renamed], "a", false),
            (Some(placed(None, Some(0))), Some(placed(None, Some(0))), vec![pool(0, &["b"], false)], "a", true),
            (
                Some(placed(None, Some(0))),
                Some(placed(None, Some(0))),
                vec![pool(0, &["10.0.0.1", "b"], true)],
                "a",
                true,
            ),
            (
                Some(placed(None, Some(0))),
                Some(placed(None, Some(0))),
                vec![pool(0, &["10.0.0.1", "b"], false)],
                "a",
                false,
            ),
        ];
        for (before, after, pools_after, node, restarts) in table {
            let what = format!("{before:?} {after:?} {pools_after:?} {node}");
            let first = generation(None, Fate::Added, before, pools(), "a");
            for kept in [Fate::Kept, Fate::KeptUnobservable] {
                let second = generation(Some(&first), kept, after.clone(), pools_after.clone(), node);
                let found = (second.changes().restarted, second.origins[&0].generation);
                assert_eq!(found, if restarts { (1, 1) } else { (0, 0) }, "{what}");
                assert_eq!(second.plan.processing_elements[0].reason.is_empty(), !restarts, "{what}");
            }
        }
    }

    #[test]
    fn pes_that_are_brought_together_move_and_as_few_as_possible() {
        use Fate::{Added, Kept, Removed};
        let label = |token: &str| key(Kind::CoLocation, token);
        let generation = |previous: Option<&Generation>, pes: &[(Fate, &[&str])]| {
            let pes = (0..).zip(pes).map(|(id, (fate, tokens))| {
                let co_locations = tokens.iter().map(|token| (*token).to_owned()).collect();
                let placement = Some(Placement { co_locations, ..Placement::default() });
                ProcessingElement { placement, ..pe(id, *fate, "a", "r") }
            });
            following(previous, pes.collect())
        };
        // the generation that it starts with, the label of its group, the generation that joined that
        let said = |generation: &Generation| -> Vec<(u64, String, u64)> {
            generation.origins.values().map(|o| (o.generation, o.group.clone(), o.joined)).collect()
        };
        let alone = |generation, joined| (generation, String::new(), joined);
        let first = generation(None, &[(Added, &["x"]), (Added, &["y"]), (Added, &["y"])]);
        assert_eq!(said(&first), [alone(0, 0), alone(0, 0), alone(0, 0)]);
        // PE 3 connects the others.
        let second = [(Kept, &["x"][..]), (Kept, &["y"]), (Kept, &["y"]), (Added, &["x", "y"])];
        let second = generation(Some(&first), &second);
        let all = [(1, label("y"), 1), alone(0, 0), alone(0, 0), (1, label("y"), 0)];
        assert_eq!(said(&second), all);
        assert_eq!((second.changes().kept, second.changes().restarted), (2, 1));
        assert_eq!(second.plan.processing_elements[0].reason, MOVED);
        assert_eq!(Generation::decode(&second.encode()).unwrap(), second);
        // Without it, nobody has to move.
        let third = [(Kept, &["x"][..]), (Kept, &["y"]), (Kept, &["y"]), (Removed, &[])];
        let third = generation(Some(&second), &third);
        assert_eq!(said(&third), [alone(1, 1), alone(0, 0), alone(0, 0)]);
        assert_eq!(third.changes().restarted, 0);

        // Stored by a frontend that knew of no groups.
        let mut earlier = second;
        earlier.origins.values_mut().for_each(|origin| (origin.group, origin.joined) = (String::new(), 0));
        let read = Generation::decode(&earlier.encode()).unwrap();
        assert_eq!(said(&read), [(1, label("y"), 0), alone(0, 0), alone(0, 0), (1, label("y"), 0)]);
        let next = [(Kept, &["x"][..]), (Kept, &["y"]), (Kept, &["y"]), (Kept, &["x", "y"])];
        assert_eq!(generation(Some(&read), &next).changes().restarted, 0);
        assert_eq!(read.encode(), earlier.encode(), "chunks that somebody deletes are made again as they were");
    }

    #[test]
    fn a_pe_that_is_brought_together_with_others_moves_though_the_text_is_taken_back_that_it_goes_for() {
        use Fate::{Added, Kept, Restarted};
        let generation = |previous: Option<&Generation>, pes: &[(Fate, &str, &[&str])]| {
            let pes = (0..).zip(pes).map(|(id, (fate, runtime, tokens))| {
                let co_locations = tokens.iter().map(|token| (*token).to_owned()).collect();
                let placement = Some(Placement { co_locations, ..Placement::default() });
                ProcessingElement { placement, ..pe(id, *fate, runtime, runtime) }
            });
            following(previous, pes.collect())
        };
        // what is wanted of PE 0: its text, and since when it is in another group
        let wanted = |generation: &Generation| {
            let origin = &generation.origins[&0];
            (origin.runtime_id.clone(), origin.group.clone(), origin.joined)
        };
        let first: [(_, _, &[&str]); 3] = [(Added, "r0", &["x"]), (Added, "r", &["y"]), (Added, "r", &["y"])];
        let first = generation(None, &first);
        assert_eq!(wanted(&first), ("r0".to_owned(), String::new(), 0));
        let (label, others) = (key(Kind::CoLocation, "y"), [(Kept, "r", &["y"][..]), (Kept, "r", &["y"])]);
        // PE 3 connects them. Perhaps PE 0 still runs its first text when it is to run that again.
        let [one, two] = others;
        let second = generation(Some(&first), &[(Restarted, "r1", &["x"]), one, two, (Added, "r", &["x", "y"])]);
        assert_eq!(wanted(&second), ("r1".to_owned(), label.clone(), 1));
        let third = generation(Some(&second), &[(Restarted, "r0", &["x"]), one, two, (Kept, "r", &["x", "y"])]);
        assert_eq!(wanted(&third), ("r0".to_owned(), label, 1));
    }

    #[test]
    fn the_stored_form_is_one_message_though_the_plan_is_not_copied_for_it() {
        let mut generation = following(None, (0..300).map(|id| pe(id, Fate::Added, "a", "r")).collect());
        generation.warnings.push(Warning { reason: "r".to_owned(), message: "m".to_owned() });
        generation.nodes.insert("10.0.0.1".to_owned(), "n".to_owned());
        let (before, after) = generation.stored_beside_plan();
        let StoredGeneration { format, number, compilation, .. } = before;
        let whole = StoredGeneration { format, number, compilation, plan: Some(generation.plan.clone()), ..after };
        assert_eq!(generation.encode(), whole.encode_to_vec());
        assert_eq!(generation.encoded_len(), whole.encoded_len());
    }

    #[test]
    fn what_each_pe_has_of_all_others_is_not_kept() {
        let isolation_labels = vec!["o".to_owned(); 100];
        let placement = Placement { isolation: Some("p".to_owned()), isolation_labels, ..Placement::default() };
        let placed = ProcessingElement { placement: Some(placement), ..pe(0, Fate::Added, "a", "r") };
        let generation = following(None, vec![placed, pe(1, Fate::Added, "a", "r")]);
        let kept = Placement { isolation: Some("p".to_owned()), ..Placement::default() };
        assert_eq!(generation.plan.processing_elements[0].placement, Some(kept));
    }

    #[test]
    fn a_plan_does_not_keep_the_answer_that_it_came_with() {
        let answer = Bytes::from(vec![7; 1 << 20]);
        let plan = Plan { layout: answer.slice(..10), adl_sha256: answer.slice(10..42), ..Plan::default() };
        let (target, compilation) = (Target::Submission { inputs: String::new() }, Compilation::default());
        let generation = Generation::following(None, target, compilation, plan, GenerationDetails::default());
        assert_eq!((&generation.plan.layout[..], &generation.plan.adl_sha256[..]), (&[7; 10][..], &[7; 32][..]));
        assert!(answer.is_unique(), "something else has a part of it");
    }

    #[test]
    fn the_stored_form_is_read_back_without_the_adl() {
        let generation = following(None, vec![pe(0, Fate::Added, "a0", "r0")]);
        let bytes = generation.encode();
        assert_eq!(Generation::decode(&bytes).unwrap(), generation);
        assert_eq!(generation.compilation.adl.as_ref().unwrap().content, None);
        assert_eq!(generation.encode(), bytes);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let generation = following(None, vec![pe(0, Fate::Added, "a0", "r0")]);
        let mut without_origin = generation.clone();
        without_origin.origins.clear();
        let other_format =
            StoredGeneration { format: 9, ..StoredGeneration::decode(generation.encode().as_slice()).unwrap() };
        let table = [
            (without_origin.encode(), "do not belong together"),
            (other_format.encode_to_vec(), "format 9"),
            (StoredGeneration { format: FORMAT, ..StoredGeneration::default() }.encode_to_vec(), "no plan"),
            (b"\xff\xff".to_vec(), "the stored plan cannot be read"),
        ];
        for (bytes, expected) in table {
            let message = Generation::decode(&bytes).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
