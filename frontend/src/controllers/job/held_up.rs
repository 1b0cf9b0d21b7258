//! What holds a proposal up that is tried again and again: the cluster refuses an object or a text of it, or one is
//! being deleted and does not go.
//!
//! A proposal is in front of all else that is wanted of the job. So if it has been held up for a while, and others
//! wait, it gives way, and it is found out which wish is at fault (rules elasticity-3 and job-25). Whatever else has
//! failed says nothing of the proposal: what the committed generation needs, what requests are told, a service that
//! does not answer. Pure.
//!
//! Knows: failures, and since when. Must not know: what is done about it.

use super::child::Child;
use super::owned::Owned;
use super::refusals::is_of_object;
use super::requests::apart::{DEADLINE_EXCEEDED, REPLICAS_LOST};
use super::tasks::{Failure, Remedy};
use crate::controllers::times::{after, distance};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streams_kubernetes::writer::DEFINITIONS_OUTDATED;

/// How long a proposal is held up before it gives way: whatever counts objects for a quota may not have heard of their
/// deletion, and what is being deleted most often goes at once.
const FOR_A_WHILE: Duration = Duration::from_secs(5);
/// Why texts cannot be rendered although the fusion service answers: others may be rendered.
const OF_TEXTS: [&str; 3] = [DEADLINE_EXCEEDED, REPLICAS_LOST, "FusionFailed"];
/// An object of the wanted name is being deleted.
pub(crate) const TERMINATING: &str = "Terminating";
/// How the API server says that an admission webhook fails, which it asks about some objects only.
const OF_WEBHOOK: &str = "failed calling webhook";

/// When it is known whether something lasts that is seen for the first time.
pub(crate) fn looked_at_again(now: Timestamp) -> Timestamp {
    after(now, FOR_A_WHILE)
}

/// What of a proposal is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProposalPart {
    /// This object.
    Child(Child),
    /// Texts.
    Texts,
    /// Something that is not tried now.
    Blocked,
}

/// An object that the proposal is to have and that is not written now: nothing fails, and nothing comes of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// It is being deleted, and is made anew once it is gone.
    Terminating(Owned),
    /// The ConfigMap of this name: somebody else changes it as often as it is written.
    ChangedByOthers(String),
}

impl Blocked {
    /// What is said of it, of a job with this name.
    pub(crate) fn failure(&self, job: &str) -> Failure {
        let (reason, message) = match self {
            Self::Terminating(object) => {
                let object = object.of_job(job);
                (TERMINATING, format!("{object} is being deleted and does not go away: it may have finalizers"))
            }
            Self::ChangedByOthers(name) => {
                ("ChangedByOthers", format!("somebody else changes ConfigMap {name} as often as it is written"))
            }
        };
        let remedy = Remedy::Retry(Timestamp::MAX);
        Failure { remedy, reason: reason.to_owned(), message, stage: None, code: None }
    }
}

/// What holds the proposal up, as far as this process has seen it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeldUp {
    /// Digest of its plan.
    plan: String,
    /// Since when, and by what first.
    by: BTreeMap<ProposalPart, HoldUp>,
}

/// Something that holds a proposal up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldUp {
    /// What is not written.
    part: ProposalPart,
    /// Since when.
    since: Timestamp,
    /// What is said of it. Trying again may help.
    pub(crate) failure: Failure,
}

impl HoldUp {
    /// From when on it is not waited for if others wait.
    pub(crate) fn end(&self) -> Timestamp {
        looked_at_again(self.since)
    }

    /// It has lasted for a while, or a clock was put back since by as much.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        distance(self.since, now) >= FOR_A_WHILE
    }

    /// Nothing comes of the proposal for now: it has lasted for a while. Only looks know whether an object is still in
    /// the way that is not tried: `blocked` is what the present one has found.
    pub(crate) fn is_in_vain(&self, blocked: Option<&Blocked>, now: Timestamp) -> bool {
        self.lasts(now) && (self.part != ProposalPart::Blocked || blocked.is_some())
    }
}

impl HeldUp {
    /// This part of the proposal with this plan could not be written. Says nothing if that is not due to what the
    /// proposal has.
    pub(crate) fn failed(&mut self, plan: &str, part: ProposalPart, failure: &Failure, now: Timestamp) {
        let is_of_text = part == ProposalPart::Texts && OF_TEXTS.contains(&failure.reason.as_str());
        let is_of_webhook = failure.message.contains(OF_WEBHOOK);
        let is_in_the_way = [TERMINATING, DEFINITIONS_OUTDATED].contains(&failure.reason.as_str());
        if is_of_object(failure) || is_in_the_way || is_of_text || is_of_webhook {
            self.note(plan, part, || failure.clone(), now);
        }
    }

    /// The proposal with this plan, of a job with this name, waits for this object; or for none.
    pub(crate) fn waits_for(&mut self, plan: &str, job: &str, blocked: Option<&Blocked>, now: Timestamp) {
        match blocked {
            Some(blocked) => self.note(plan, ProposalPart::Blocked, || blocked.failure(job), now),
            None => self.is_over(ProposalPart::Blocked),
        }
    }

    /// Whether it is about the proposal with this plan.
    pub(crate) fn is_of(&self, plan: &str) -> bool {
        self.plan == plan
    }

    /// This part is written, or is waited for no longer.
    pub(crate) fn is_over(&mut self, part: ProposalPart) {
        self.by.remove(&part);
    }

    /// Of the objects of the proposal these are still to be written: the others are there, or not due.
    pub(crate) fn keep_tried(&mut self, tried: &BTreeSet<Child>) {
        self.by.retain(|part, _| match part {
            ProposalPart::Child(child) => tried.contains(child),
            ProposalPart::Texts | ProposalPart::Blocked => true,
        });
    }

    /// The proposal with this plan has been held up for a while.
    pub(crate) fn lasts(&self, plan: &str, now: Timestamp) -> bool {
        self.longest(plan).is_some_and(|obstacle| obstacle.lasts(now))
    }

    /// What has held the proposal with this plan up for longest, if anything does.
    pub(crate) fn longest(&self, plan: &str) -> Option<&HoldUp> {
        self.by.values().filter(|_| self.is_of(plan)).min_by_key(|obstacle| obstacle.since)
    }

    fn note(&mut self, plan: &str, part: ProposalPart, failure: impl FnOnce() -> Failure, now: Timestamp) {
        if !self.is_of(plan) {
            *self = Self { plan: plan.to_owned(), by: BTreeMap::new() };
        }
        // The words of the first: others may differ in figures only, and would be told each time.
        self.by.entry(part).or_insert_with(|| HoldUp { part, since: now, failure: failure() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_due_to_the_proposal_holds_it_up_and_since_it_was_seen_first() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let failure = |reason: &str, message: &str| Failure {
            remedy: Remedy::Retry(Timestamp::MAX),
            reason: reason.to_owned(),
            message: message.to_owned(),
            stage: None,
            code: None,
        };
        let (service, webhook) =
            (ProposalPart::Child(Child::Service(1)), "Internal error: failed calling webhook \"w\": no");
        // part, reason, words -> it counts
        let table = [
            (service, "QuotaExceeded", "", true),
            (service, "Forbidden", "", true),
            (service, DEFINITIONS_OUTDATED, "", true),
            (service, TERMINATING, "", true),
            (service, "ApiServer", webhook, true),
            (service, "ApiServer", "it does not answer", false),
            (service, "NamespaceTerminating", "", false),
            (service, DEADLINE_EXCEEDED, "", false),
            (ProposalPart::Texts, DEADLINE_EXCEEDED, "", true),
            (ProposalPart::Texts, "FusionUnavailable", "", false),
            (ProposalPart::Texts, "ObjectRefused", "", true),
        ];
        for (part, reason, message, counts) in table {
            let mut held_up = HeldUp::default();
            held_up.failed("p", part, &failure(reason, message), at(10));
            held_up.failed("p", part, &failure(reason, "in other words"), at(12));
            let obstacle = held_up.longest("p").cloned();
            let expected = counts.then(|| HoldUp { part, since: at(10), failure: failure(reason, message) });
            assert_eq!(obstacle, expected, "{part:?} {reason}");
            assert_eq!(held_up.longest("q"), None, "another proposal");
            if let Some(obstacle) = obstacle {
                // A clock may be put back.
                let (seconds, expected) = ([14, 15, 6, 5, -1_800], [false, true, false, true, true]);
                assert_eq!(seconds.map(|second| obstacle.lasts(at(second))), expected);
                assert_eq!(seconds.map(|second| held_up.lasts("p", at(second))), expected);
                assert_eq!(seconds.map(|second| obstacle.is_in_vain(None, at(second))), expected);
            }
            held_up.is_over(part);
            assert_eq!(held_up.longest("p"), None, "it is over");
        }
        let mut held_up = HeldUp::default();
        held_up.failed("p", service, &failure("Forbidden", ""), at(10));
        held_up.keep_tried(&[Child::Service(1), Child::Service(2)].into());
        assert!(held_up.longest("p").is_some(), "it is tried again");
        held_up.keep_tried(&[Child::Service(2)].into());
        assert_eq!(held_up.longest("p"), None, "it is there");
        let blocked = Blocked::Terminating(Owned::ConfigMap("t".to_owned()));
        held_up.waits_for("p", "job", Some(&blocked), at(10));
        let obstacle = held_up.longest("p").unwrap();
        assert!(obstacle.failure.message.starts_with("ConfigMap t is being deleted"));
        // what this look has found in the way, second -> it comes to nothing
        for (blocked, second, expected) in [(Some(&blocked), 14, false), (Some(&blocked), 15, true), (None, 15, false)]
        {
            assert_eq!(obstacle.is_in_vain(blocked, at(second)), expected, "{blocked:?} {second}");
        }
        held_up.failed("q", service, &failure("Forbidden", ""), at(20));
        assert_eq!(held_up.longest("q").map(HoldUp::end), Some(at(25)), "what held up the one before is over");
    }
}
