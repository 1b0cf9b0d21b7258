//! Texts of a resize that need not wait until its plan is recorded: those that come with the answer of the compiler,
//! and those whose writing begins while the plan is stored (rules job-3 and call-16).
//!
//! Knows: plans that were just made, what of the job is there. Must not know: how texts are written.

use super::{Assignment, start};
use crate::controllers::job::documents::chunks::digest;
use crate::controllers::job::generation::Target;
use crate::controllers::job::tasks::{BeingStored, CompileRequest, PublishRequest, Task};
use crate::fusion::RenderedText;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use streams_kubernetes::cluster::Cluster;
use streams_proto::fusion::v1::Plan;
use streams_proto::fusion::v1::resize_response::Text;

/// How many bytes of texts may come with an answer. They stay in memory until the first try to write them has ended.
pub(super) const MAX_TEXT_BYTES: u64 = 64 << 10;

/// The texts that came with this plan, without those that it does not have, or has otherwise: these are rendered.
/// Copies: a part of an answer keeps all of it.
pub(super) fn of_plan(texts: Vec<Text>, plan: &Plan) -> BTreeMap<u64, RenderedText> {
    if texts.is_empty() {
        return BTreeMap::new();
    }
    let planned: BTreeMap<u64, &str> =
        plan.processing_elements.iter().map(|pe| (pe.id, pe.content_id.as_str())).collect();
    let mut left = MAX_TEXT_BYTES;
    let checked = texts.into_iter().filter_map(|Text { pe_id, content }| {
        left = left.checked_sub(content.len() as u64)?;
        let content_id = digest(&content);
        let is_planned = planned.get(&pe_id) == Some(&content_id.as_str());
        is_planned.then(|| (pe_id, RenderedText { pe_id, content_id, text: Bytes::copy_from_slice(&content) }))
    });
    checked.collect()
}

/// Keeps the texts that came with the plan of this digest, of this compilation, until the first try to write them has
/// ended; if there is no room for them, they are rendered (rule job-8).
pub(super) fn keep<C: Cluster>(
    assignment: &Assignment<'_, C>,
    request: &CompileRequest,
    plan: &str,
    texts: BTreeMap<u64, RenderedText>,
) {
    let Assignment { reconciler, key, uid, .. } = assignment;
    if texts.is_empty() {
        return;
    }
    let Some(texts) = reconciler.memory.at_hand(plan.to_owned(), texts) else { return };
    reconciler.memory.find(key, uid, |entry| {
        if entry.tasks.compile.running() == Some(request) {
            entry.texts_at_hand = Some(texts);
        }
    });
}

/// The plan of a resize is being stored from now on: no text goes meanwhile. Has those written that are not there.
/// `texts` are the PEs that need one, each with the name of its ConfigMap. Nothing is written in a crowd: widths change
/// before the plan is recorded, and what is written for nothing has others wait.
pub(super) fn begin<C: Cluster>(
    assignment: &Assignment<'_, C>,
    request: &CompileRequest,
    being_stored: BeingStored,
    texts: &[(u64, String)],
) {
    let Assignment { reconciler, key, uid, .. } = assignment;
    if matches!(request.target, Target::Submission { .. }) {
        return;
    }
    let is_crowded = reconciler.cluster.was_crowded(&key.namespace);
    // A look at the job finds what becomes of those that are there, and that others delete or have changed.
    let is_shown = |name: &str| reconciler.mirrors.config_maps.contains(&key.sibling(name));
    let texts: Vec<_> = texts.iter().map(|(id, name)| (*id, name.as_str(), is_shown(name))).collect();
    let now = reconciler.cluster.now();
    let begun = reconciler.memory.find(key, uid, |entry| {
        let plan = being_stored.plan.sha256.clone();
        if !entry.tasks.begin_to_store(request, being_stored) || is_crowded {
            return None;
        }
        let held_back = entry.held_back(now);
        let deleted: BTreeSet<&str> = entry.own_writes.deleted_config_maps().collect();
        let is_there = |name: &str, is_shown: bool| (is_shown && !deleted.contains(name)) || entry.has_written(name);
        let lacking = texts.iter().filter(|(_, name, is_shown)| !is_there(name, *is_shown));
        let lacking = lacking.filter(|(_, name, _)| !held_back.contains_key(*name));
        let pe_ids: Vec<u64> = lacking.map(|(id, ..)| *id).collect();
        (!pe_ids.is_empty()).then_some(PublishRequest { plan, pe_ids })
    });
    if let Some(texts) = begun.flatten() {
        start(reconciler, key, uid, &Task::Publish(texts), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::ProcessingElement;

    #[test]
    fn only_texts_that_the_plan_names_are_at_hand_and_no_more_than_were_asked_for() {
        let large = vec![b'x'; 64 << 10];
        let pe = |id, text: &[u8]| ProcessingElement { id, content_id: digest(text), ..ProcessingElement::default() };
        let plan = Plan {
            processing_elements: vec![pe(1, b"one"), pe(2, b"two"), pe(3, &large), pe(4, b"")],
            ..Plan::default()
        };
        let text = |pe_id, content: &[u8]| Text { pe_id, content: Bytes::copy_from_slice(content) };
        // what comes -> PEs whose texts are at hand
        let table: [(Vec<Text>, &[u64]); 5] = [
            (vec![], &[]),
            (vec![text(1, b"one"), text(2, b"two"), text(4, b"")], &[1, 2, 4]),
            (vec![text(1, b"two"), text(2, b"two"), text(7, b"seven")], &[2]),
            (vec![text(3, &large), text(4, b"")], &[3, 4]),
            (vec![text(1, b"one"), text(3, &large), text(2, b"two")], &[1, 2]),
        ];
        for (texts, expected) in table {
            let named: Vec<u64> = texts.iter().map(|text| text.pe_id).collect();
            let at_hand = of_plan(texts, &plan);
            assert_eq!(at_hand.keys().copied().collect::<Vec<_>>(), expected, "{named:?}");
            assert!(at_hand.iter().all(|(id, text)| *id == text.pe_id && text.content_id == digest(&text.text)));
        }
    }
}
