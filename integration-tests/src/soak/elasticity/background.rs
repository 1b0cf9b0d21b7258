//! Submissions beside what is measured: large applications, one after the other.

use crate::sample;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Error, Result};
use futures::future::try_join_all;
use kube::api::{Api, DeleteParams};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{FusionOptions, Job};
use streams_control_plane::ControlPlane;
use streams_test_support::application::Sketch;

/// Operators of one layer; each is connected with each of the next.
const LAYER: usize = 25;
const WITHIN: Duration = Duration::from_secs(600);

/// Submits so many applications of so many operators at a time, again and again; counts those that came to a
/// generation. Ends only if something fails.
pub(super) async fn submissions(
    control_plane: &ControlPlane,
    bundles: &Path,
    (at_once, operators): (usize, usize),
    submitted: &AtomicUsize,
) -> Error {
    if at_once == 0 {
        return std::future::pending().await;
    }
    let endless = async {
        let bundle = sample::bundle_of(&layers(operators).adl())?;
        std::fs::write(bundles.join("layers.sab"), bundle).context("cannot write the bundle")?;
        let client = control_plane.client().await?;
        let namespace = control_plane.namespace("beside").await?;
        let lanes = (0..at_once).map(|lane| {
            let (client, namespace) = (client.clone(), namespace.clone());
            async move {
                for number in 0.. {
                    let mut job = sample::job(&namespace, &format!("layers-{lane}-{number}"));
                    job.spec.bundle.file = Some("layers.sab".to_owned());
                    // One PE: what is submitted costs the compiler, not the API server.
                    job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(1), ..FusionOptions::default() });
                    let job = ObservedJob::create(&client, &job).await?;
                    job.until("a generation", WITHIN, |status| status.generation.context("none")).await?;
                    submitted.fetch_add(1, Ordering::Relaxed);
                    let jobs: Api<Job> = job.api();
                    jobs.delete(job.name(), &DeleteParams::background()).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(lanes).await.map(drop)
    };
    let ended: Result<()> = endless.await;
    ended.err().unwrap_or_else(|| anyhow::anyhow!("they ended"))
}

/// An application of about so many operators in layers, each connected with all of the next layer.
fn layers(operators: usize) -> Sketch {
    let layers = operators.div_ceil(LAYER).max(2);
    let name = |layer: usize, at: usize| format!("L{layer}N{at}");
    let all = (0..layers).flat_map(|layer| (0..LAYER).map(move |at| (layer, at)));
    let sketch = all.clone().fold(Sketch::new(), |sketch, (layer, at)| {
        sketch.op(&name(layer, at), usize::from(layer > 0), usize::from(layer + 1 < layers))
    });
    all.filter(|(layer, _)| layer + 1 < layers).fold(sketch, |sketch, (layer, at)| {
        let from = format!("{}:0", name(layer, at));
        (0..LAYER).fold(sketch, |sketch, to| sketch.connect(&from, &format!("{}:0", name(layer + 1, to))))
    })
}

#[cfg(test)]
mod tests {
    use super::{LAYER, layers};

    #[test]
    fn every_operator_of_a_layer_is_connected_with_all_of_the_next() {
        let adl = layers(2 * LAYER).adl();
        assert_eq!(adl.matches("<primitiveOperInstance ").count(), 2 * LAYER);
        // Both ends of a connection name it.
        assert_eq!(adl.matches("<connection ").count(), 2 * LAYER * LAYER);
    }
}
