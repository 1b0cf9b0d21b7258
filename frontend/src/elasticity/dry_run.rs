//! Dry runs of `Resize` (rule elasticity-24): the answer that the real call would come to, as far as it is known
//! before.
//!
//! Invariants: the plans of one dry run are in memory at a time; namespaces that wait take turns, and so do callers of
//! one. A dry run that was begun goes on to its end, and has its place and its turn until then, whether its caller
//! waits for it or not: what it reads, unpacks and compiles on other threads cannot be taken back, and who asks again
//! and again without waiting would have all of them busy.

use super::view::ClusterView;
use super::waiting::{READING, region_names};
use super::{Elasticity, ended, errors, outcome, requests};
use crate::controllers::job::cool_down::CoolDown;
use crate::controllers::job::long_work::dry_run::{Foreseen, Foresight, Unforeseen};
use crate::grpc::places::CallerName;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;
use streams_proto::elasticity::v1::dry_run::{Fate as Shown, PlannedChange};
use streams_proto::elasticity::v1::{DryRun, ResizeRequest, ResizeResponse};
use streams_proto::fusion::v1::{Fate, ProcessingElement};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tracing::Instrument as _;

/// PEs that an answer lists.
const LISTED: usize = 1_000;
/// Operators of a PE that it names.
const OPERATORS: usize = 4;
/// Longest text of an entry, in bytes.
const TEXT: usize = 256;
/// Warnings of an answer.
const WARNINGS: usize = 100;

impl<V: ClusterView> Elasticity<V> {
    /// What a request for widths would come to. Callers of a namespace share what it may have of dry runs.
    ///
    /// # Errors
    /// Those of the real call; or it is not known now.
    pub(super) async fn foresee(
        &self,
        key: &Key,
        job: &Arc<Job>,
        request: &ResizeRequest,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<ResizeResponse, Status> {
        let place = self.foreseeing.take(&key.namespace, None, caller);
        let place = place.map_err(|full| errors::too_many_dry_runs(&full))?;
        let mut wanted = requests::object(job, request);
        // There is no object of it.
        (wanted.metadata.namespace, wanted.metadata.name) = (Some(key.namespace.to_string()), None);
        let (what, names) = ("the dry run", region_names(&wanted));
        let (dry_runs, of_job) = (Arc::clone(&self.dry_runs), Arc::clone(job));
        let of_caller = caller.map(|CallerName(name)| Arc::clone(name)).unwrap_or_default();
        let foreseen = async {
            let owner = Owner { namespace: Arc::clone(&key.namespace), object: of_caller };
            let turn = self.dry_run_turns.acquire_for(owner).await;
            let begun = async move {
                let _held = (place, turn);
                dry_runs.foresee(&of_job, wanted).await
            };
            tokio::spawn(begun.in_current_span()).await
        };
        let foreseen = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return Err(errors::shutting_down_while("", what)),
            foreseen = timeout_at(deadline, foreseen) => foreseen,
        };
        let foreseen = foreseen.map_err(|_| errors::still_waiting_to("", what))?;
        let foreseen = foreseen.map_err(|_| errors::not_foreseen("the dry run came to no end"))?;
        let mut answer = match foreseen {
            Err(Unforeseen(why)) => return Err(errors::not_foreseen(&why)),
            Ok(Foreseen::Refused(refused)) => {
                return Err(ended::why(key, &refused, &ended::known_regions(job.status.as_ref())));
            }
            Ok(Foreseen::InForce(generation)) => {
                let dry_run = Some(DryRun::default());
                ResizeResponse { generation: Some(generation), dry_run, ..ResizeResponse::default() }
            }
            Ok(Foreseen::Planned(Foresight { generation, changes, changed, warnings })) => {
                let unlisted = changed.len().saturating_sub(LISTED);
                let waits = self.cool_down(key, job, request).map(|cool_down| cool_down.message());
                let texts = waits.into_iter().chain(warnings.into_iter().map(|warning| warning.message));
                let texts = texts.take(WARNINGS).map(|text| beginning(&text));
                let dry_run = DryRun {
                    processing_elements: changed.iter().take(LISTED).map(planned_change).collect(),
                    unlisted: u32::try_from(unlisted).unwrap_or(u32::MAX),
                    warnings: texts.collect(),
                };
                ResizeResponse {
                    generation: Some(generation),
                    changes: Some(outcome::of_pes(changes)),
                    dry_run: Some(dry_run),
                    ..ResizeResponse::default()
                }
            }
        };
        // Not before: whoever is refused waits for nobody's reads, and costs none.
        let regions = timeout_at(deadline, self.regions_of(key, names)).await;
        answer.regions = regions.map_err(|_| errors::still_waiting_to("", READING))??;
        Ok(answer)
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// What the real request would wait for before it is compiled (rule elasticity-25).
    fn cool_down(&self, key: &Key, job: &Job, request: &ResizeRequest) -> Option<CoolDown> {
        let status = job.status.as_ref()?;
        let named = request.regions.iter();
        let regions: Vec<_> =
            named.filter_map(|named| self.view.region(&key.namespace, &key.name, &named.region)).collect();
        let region = |name: &str| regions.iter().map(|region| &**region).find(|region| region.spec.name == name);
        let applied = status.applied_widths.iter().map(|applied| (applied.region.clone(), applied.width)).collect();
        let wanted = request.regions.iter().map(|wanted| (wanted.region.clone(), wanted.width)).collect();
        CoolDown::in_the_way(&job.spec, status, region, &applied, &wanted, Timestamp::now())
    }
}

fn planned_change(pe: &ProcessingElement) -> PlannedChange {
    let fate = match pe.fate() {
        Fate::Added => Shown::Added,
        Fate::Restarted => Shown::Restarted,
        Fate::Removed => Shown::Removed,
        Fate::Unspecified | Fate::Kept | Fate::KeptUnobservable => Shown::Unspecified,
    };
    PlannedChange {
        id: pe.id,
        fate: fate.into(),
        reason: beginning(&pe.reason),
        operators: pe.operators.iter().take(OPERATORS).map(|name| beginning(name)).collect(),
    }
}

/// The beginning of a text: all entries together make a message of at most some MiB.
fn beginning(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_bounded() {
        let operators = vec!["\u{e9}".repeat(1_000); 100];
        let pe = ProcessingElement {
            id: 7,
            fate: Fate::Restarted.into(),
            reason: "r".repeat(10_000),
            operators,
            ..ProcessingElement::default()
        };
        let shown = planned_change(&pe);
        assert_eq!((shown.id, shown.fate(), shown.operators.len()), (7, Shown::Restarted, OPERATORS));
        assert!(shown.reason.len() == TEXT && shown.operators.iter().all(|name| name.len() <= TEXT));
    }
}
