//! Jobs whose number cannot be written (rules job-5 and job-41).

use super::simulation::{JobSimulation, NAMESPACE};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use std::collections::BTreeMap;
use streams_api::{JobPhase, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes_fake::Verb;

const QUOTA: &str = "configmaps \"streams-job-ids\" is forbidden: exceeded quota: q, requested: configmaps=1, used: \
                     configmaps=9, limited: configmaps=9";

/// What is in the way of the counter.
enum InTheWay {
    /// The API server gives this answer to who creates it: its code and its words.
    Answer(u16, &'static str),
    /// Somebody has written this into it.
    Content(&'static str),
}

impl InTheWay {
    fn begins(&self, simulation: &JobSimulation) {
        match *self {
            Self::Answer(code, words) => simulation.server.refuse(move |call| {
                let is_meant = call.verb == Verb::Create && *call.key.name == *names::JOB_IDS;
                is_meant.then(|| *Status::failure(words, "R").with_code(code).boxed())
            }),
            Self::Content(next) => {
                let (name, namespace) = (Some(names::JOB_IDS.to_owned()), Some(NAMESPACE.to_owned()));
                let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
                let data = Some(BTreeMap::from([("next".to_owned(), next.to_owned())]));
                simulation.server.create(&ConfigMap { metadata, data, ..ConfigMap::default() });
            }
        }
    }

    fn ends(&self, simulation: &JobSimulation) {
        match self {
            Self::Answer(..) => simulation.server.refuse(|_| None),
            Self::Content(_) => simulation.server.remove::<ConfigMap>(&Key::new(NAMESPACE, names::JOB_IDS)),
        }
    }
}

fn reasons(simulation: &JobSimulation) -> Vec<String> {
    simulation.server.announced().into_iter().map(|announced| announced.notice.reason.into_owned()).collect()
}

#[test]
fn a_job_whose_number_cannot_be_written_says_why_once_and_goes_on_when_it_can() {
    let refused = |words: &str| format!("ConfigMap streams-job-ids was refused: {words}");
    let failed = (JobPhase::Failed, vec!["SubmissionFailed"]);
    // what is in the way -> phase and Events; reason and message of the condition Submitted
    let table = [
        (InTheWay::Answer(403, QUOTA), &failed, ("QuotaExceeded", QUOTA.to_owned())),
        (InTheWay::Answer(403, "a webhook denied it"), &failed, ("Forbidden", "a webhook denied it".to_owned())),
        (InTheWay::Answer(422, "a policy denied it"), &failed, ("ObjectRefused", refused("a policy denied it"))),
        (
            InTheWay::Content("x"),
            &failed,
            ("ObjectRefused", refused("next is \"x\" instead of a number; delete the ConfigMap")),
        ),
        (
            InTheWay::Content("9223372036854775808"),
            &failed,
            (
                "ObjectRefused",
                refused("next is \"9223372036854775808\" instead of the number of a job; delete the ConfigMap"),
            ),
        ),
        // That passes by itself.
        (InTheWay::Answer(500, "no webhook"), &(JobPhase::Pending, vec![]), ("ApiServer", "no webhook".to_owned())),
    ];
    for (in_the_way, (phase, told), (reason, message)) in table {
        let mut simulation = JobSimulation::new();
        in_the_way.begins(&simulation);
        simulation.until(|simulation| simulation.status().phase.is_some());
        let status = simulation.status();
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).unwrap();
        assert_eq!((submitted.reason.as_str(), &submitted.message), (reason, &message));
        assert_eq!((status.phase, status.job_id), (Some(*phase), None), "{message}");
        assert_eq!(reasons(&simulation), *told, "{message}");
        // It is tried again with back-off, and nothing else is said meanwhile.
        let writes = simulation.status_writes();
        for _ in 0..5 {
            simulation.wait(60);
            assert_eq!(simulation.reconcile(), None, "{message}");
            simulation.work();
        }
        // Whoever leads next says nothing else.
        simulation.crash();
        for _ in 0..5 {
            simulation.reconcile();
            simulation.work();
            simulation.wait(1);
        }
        assert_eq!(simulation.status_writes(), writes, "{message}");
        assert!(reasons(&simulation).is_empty(), "{message}");
        in_the_way.ends(&simulation);
        simulation.settle();
        simulation.check_at_rest();
        let status = simulation.status();
        assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Running), 1), "{message}");
        assert!(!reasons(&simulation).contains(&"SubmissionFailed".to_owned()), "{message}");
    }
}
