//! A namespace is deleted while jobs run in it.

use crate::fixture::{WITHIN, sketched, with_running_pes_led};
use anyhow::{Result, ensure};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use streams_control_plane::wait::eventually;
use streams_test_support::application::Sketch;

/// What the frontend still knows of namespaces.
const KNOWN: [&str; 4] = [
    r#"streams_frontend_watched_objects{kind="ConsistentRegion"}"#,
    r#"streams_frontend_watched_objects{kind="Job"}"#,
    r#"streams_frontend_watched_objects{kind="ProcessingElement"}"#,
    r#"streams_frontend_watched_objects{kind="Pod"}"#,
];

#[tokio::test]
async fn all_that_runs_in_a_namespace_goes_with_it() -> Result<()> {
    with_running_pes_led("running-namespaces", &["--no-leader-election"], async |it| {
        let row = Sketch::row(&["Source", "Work", "Sink"]).parallel("Work", 3);
        let first = sketched(it, "first", &row).await?;
        let second = sketched(it, "second", &Sketch::driven(3, "30", "10")).await?;
        let frontend = it.system.frontend()?;
        for figure in KNOWN {
            ensure!(frontend.metric(figure).await? > 0.0, "{figure} is 0 while jobs run");
        }
        let pods: Vec<String> = pods_of(&[&first, &second]).await?;
        ensure!(pods.iter().all(|pod| it.agent.process(&it.namespace, pod).is_some()), "{pods:?}");

        let namespaces: Api<Namespace> = Api::all(it.client.clone());
        namespaces.delete(&it.namespace, &DeleteParams::default()).await?;
        eventually("the namespace is gone", WITHIN, || async {
            let left = namespaces.get_opt(&it.namespace).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|left| left.status));
            Ok(())
        })
        .await?;
        eventually("no PE runs", WITHIN, || async {
            let running: Vec<_> = pods.iter().filter(|pod| it.agent.process(&it.namespace, pod).is_some()).collect();
            ensure!(running.is_empty(), "{running:?}");
            Ok(())
        })
        .await?;
        ensure!(frontend.process().id().is_some(), "the frontend has ended");
        for figure in KNOWN {
            eventually("nothing is known of it", WITHIN, || async {
                let known = frontend.metric(figure).await?;
                ensure!(known == 0.0, "{figure}: {known}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}

async fn pods_of(jobs: &[&ObservedJob]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for job in jobs {
        names.extend(job.list::<Pod>().await?.iter().map(|pod| pod.name_any()));
    }
    ensure!(names.len() > jobs.len(), "{names:?}");
    Ok(names)
}
