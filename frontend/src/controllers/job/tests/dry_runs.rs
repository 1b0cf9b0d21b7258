//! Dry runs of requests to resize: they say what the request then comes to, and write nothing (rule elasticity-24).

use super::simulation::{JobSimulation, key, wait_for};
use crate::controllers::job::long_work::dry_run::{DryRuns, Foresee as _, Foreseen, Planner, Unforeseen};
use crate::controllers::job::services::Fusion;
use crate::controllers::tests::LateMirrors;
use crate::fusion::FusionError;
use crate::settings::JobSettings;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{DesiredWidth, InitialWidth, Job, Resize, ResizePhase, ResizeSpec};
use streams_kubernetes_fake::Connection;
use streams_proto::fusion::v1::plan_request::What;
use streams_proto::fusion::v1::{PlanRequest, PlanResponse};

/// The fusion service of the simulation. It knows the ADL of the job if it was sent it.
struct Plans<F> {
    fusion: Arc<F>,
    calls: AtomicUsize,
}

impl<F: Fusion> Planner for Plans<F> {
    fn plan(&self, request: PlanRequest) -> BoxFuture<'_, Result<PlanResponse, FusionError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        async move {
            let Some(What::Resize(resize)) = request.what else { panic!("not a resize") };
            let adl = resize.compilation.as_ref().and_then(|compilation| compilation.adl.as_ref());
            if adl.is_none_or(|adl| adl.content.is_none()) {
                return Err(FusionError::InputMissing("the ADL".to_owned()));
            }
            let answer = self.fusion.resize(resize).await?;
            Ok(PlanResponse { plan: answer.plan, warnings: answer.warnings, ..PlanResponse::default() })
        }
        .boxed()
    }
}

fn dry_runs(simulation: &JobSimulation, planner: Arc<dyn Planner>) -> DryRuns<Connection> {
    let mirrors = LateMirrors::of(&simulation.server).mirrors;
    DryRuns::new(simulation.server.connect(), mirrors, planner, JobSettings::default())
}

fn request(widths: &[(&str, u32)], expected: Option<u32>) -> Resize {
    let wanted = |(name, width): &(&str, u32)| DesiredWidth {
        name: (*name).to_owned(),
        width: *width,
        expected_width: expected,
    };
    let regions = widths.iter().map(wanted).collect();
    Resize::new("", ResizeSpec { job_name: key().name.to_string(), regions, ..ResizeSpec::default() })
}

#[test]
fn a_dry_run_says_what_the_request_then_comes_to_and_writes_nothing() {
    for widths in [&[("R", 5)][..], &[("R", 1), ("S", 4)]] {
        let mut simulation = JobSimulation::running();
        let plans = Arc::new(Plans { fusion: Arc::clone(&simulation.services), calls: AtomicUsize::new(0) });
        let job = simulation.server.get::<Job>(&key()).unwrap();
        let version = simulation.server.version();
        let planner: Arc<dyn Planner> = Arc::clone(&plans) as _;
        let foreseen = wait_for(dry_runs(&simulation, planner).foresee(&job, request(widths, Some(2)))).unwrap();
        let Foreseen::Planned(foresight) = foreseen else { panic!("{foreseen:?}") };
        assert_eq!(simulation.server.version(), version, "something was written");
        assert_eq!(plans.calls.load(Ordering::Relaxed), 2, "the ADL is sent when it is asked for");
        simulation.request("real", widths);
        simulation.settle();
        let real = simulation.outcome("real");
        assert_eq!((Some(foresight.generation), Some(foresight.changes)), (real.generation, real.changes));
        let listed = u32::try_from(foresight.changed.len()).unwrap();
        let changes = foresight.changes;
        assert_eq!(listed, changes.restarted + changes.added + changes.removed);
    }
}

#[test]
fn a_dry_run_counts_pes_without_a_pod_as_the_commit_does() {
    // what has become of the source before -> PEs that take no new operators
    type Row = (fn(&JobSimulation), &'static [u64]);
    let table: [Row; 3] = [
        (|simulation| simulation.stop(0), &[0]),
        (|simulation| simulation.complete(0), &[0]),
        (|simulation| simulation.change_spec(|spec| spec.suspend = true), &[]),
    ];
    for (become_so, closed) in table {
        let mut simulation = JobSimulation::running();
        become_so(&simulation);
        simulation.settle();
        let plans = Plans { fusion: Arc::clone(&simulation.services), calls: AtomicUsize::new(0) };
        let job = simulation.server.get::<Job>(&key()).unwrap();
        let foreseen = wait_for(dry_runs(&simulation, Arc::new(plans)).foresee(&job, request(&[("R", 3)], None)));
        let Ok(Foreseen::Planned(foresight)) = foreseen else { panic!("{foreseen:?}") };
        assert_eq!(simulation.services.state().closed, closed, "of the dry run");
        simulation.services.change(|services| services.closed.clear());
        simulation.request("real", &[("R", 3)]);
        simulation.settle();
        assert_eq!(simulation.services.state().closed, closed, "of the resize");
        assert_eq!(Some(foresight.changes), simulation.outcome("real").changes);
        assert!(foresight.changes.restarted < 2, "{:?}", foresight.changes);
    }
}

#[test]
fn what_would_be_refused_is_refused_with_the_same_reason() {
    let mut simulation = JobSimulation::new();
    let bounds = InitialWidth { name: Some("S".to_owned()), max_width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    simulation.services.change(|services| services.widest = 9);
    let job = simulation.server.get::<Job>(&key()).unwrap();
    let foresee = |simulation: &JobSimulation, request| {
        let plans = Plans { fusion: Arc::clone(&simulation.services), calls: AtomicUsize::new(0) };
        wait_for(dry_runs(simulation, Arc::new(plans)).foresee(&job, request))
    };
    // widths, expected width -> reason
    let table: [(&[(&str, u32)], Option<u32>, &str); 4] = [
        (&[("S", 6)], None, "OutOfBounds"),
        (&[("R", 3), ("S", 3)], Some(7), "WidthMismatch"),
        (&[("T", 3)], None, "RegionNotFound"),
        (&[("R", 10)], None, "ApplicationRejected"),
    ];
    for (widths, expected, reason) in table {
        let foreseen = foresee(&simulation, request(widths, expected)).unwrap();
        let Foreseen::Refused(refused) = foreseen else { panic!("{foreseen:?}") };
        assert_eq!(refused.phase(), ResizePhase::Refused);
        assert_eq!(refused.status.unwrap().reason.as_deref(), Some(reason), "{widths:?}");
    }
    let same = foresee(&simulation, request(&[("R", 2), ("S", 2)], None)).unwrap();
    assert!(matches!(same, Foreseen::InForce(0)), "{same:?}");
    simulation.services.change(|services| services.is_down = true);
    let later = foresee(&simulation, request(&[("R", 3)], None));
    assert!(matches!(&later, Err(Unforeseen(why)) if why.contains("it is down")), "{later:?}");
}

#[test]
fn what_depends_on_a_request_that_is_not_decided_is_not_foreseen() {
    let mut simulation = JobSimulation::running();
    simulation.request("before", &[("R", 4)]);
    simulation.reconcile();
    let job = simulation.server.get::<Job>(&key()).unwrap();
    // expected width -> what is foreseen
    for (expected, is_known) in [(4, false), (2, false), (7, true)] {
        let plans = Plans { fusion: Arc::clone(&simulation.services), calls: AtomicUsize::new(0) };
        let foreseen =
            wait_for(dry_runs(&simulation, Arc::new(plans)).foresee(&job, request(&[("R", 3)], Some(expected))));
        assert_eq!(foreseen.is_ok(), is_known, "{expected}: {foreseen:?}");
    }
}
