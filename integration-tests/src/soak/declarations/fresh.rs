//! Jobs that are compared with: created with a spec and never changed, or with things done to them that show what an
//! option is for.

use super::judge::Standing;
use super::world::{Answer, WITHIN, World};
use crate::system::picture::{Likeness, Picture};
use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::ProcessingElement;
use streams_control_plane::wait::eventually;
use tokio::sync::OnceCell;

/// How long a job must stay as it is to be at rest, where nobody knows what it should come to.
const UNCHANGED_FOR: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// Compares a job of one spec with that of another: `true` if they differ in what has an effect.
///
/// # Errors
/// When a job cannot be looked at.
pub(super) async fn differ(world: &World, without: &Value, with: &Value) -> Result<bool> {
    let widths = BTreeMap::new();
    let (one, two) =
        tokio::try_join!(picture(world, without, &widths, 0, false), picture(world, with, &widths, 0, false))?;
    // A job of a spec that the API server refuses differs from one that there is.
    let (Some(one), Some(two)) = (&one, &two) else { return Ok(one.is_some() != two.is_some()) };
    if !one.differences(two, Likeness::Effects).is_empty() {
        return Ok(true);
    }
    let (one, two) = tokio::try_join!(stimulated(world, without), stimulated(world, with))?;
    Ok(!one.differences(&two, Likeness::Effects).is_empty())
}

/// The picture of a job that was created with this spec, has this number, and got these widths; `None` if it cannot be
/// created. If `ready`, one that does not become ready is an error.
pub(super) async fn picture(
    world: &World,
    spec: &Value,
    widths: &BTreeMap<String, Value>,
    number: u64,
    ready: bool,
) -> Result<Option<Picture>> {
    let known = {
        let mut fresh = world.fresh.lock().await;
        Arc::clone(fresh.entry(format!("{spec} {widths:?} {number}")).or_insert_with(|| Arc::new(OnceCell::new())))
    };
    let picture = known.get_or_try_init(|| async {
        let namespace = world.namespace().await?;
        world.number(&namespace, number).await?;
        if let Answer::Refused(_) = world.create(&namespace, spec).await? {
            world.leave(&namespace).await?;
            return Ok(None);
        }
        if ready || !widths.is_empty() {
            eventually("a fresh job is ready", WITHIN, || async {
                let standing = Standing::of(&world.job(&namespace).await?.unwrap_or_default());
                ensure!(standing.is_ready, "{}", standing.says);
                Ok(())
            })
            .await?;
        }
        for (region, width) in widths {
            if let Answer::Refused(said) = world.resize(&namespace, region, width).await? {
                bail!("{region}={width}: {said}");
            }
        }
        let picture = at_rest(world, &namespace).await?;
        world.leave(&namespace).await?;
        anyhow::Ok(Some(picture))
    });
    picture.await.cloned()
}

/// The picture of a job of this spec after widths were changed and pods have failed, completed, and been deleted.
async fn stimulated(world: &World, spec: &Value) -> Result<Picture> {
    let namespace = world.namespace().await?;
    world.create(&namespace, spec).await?;
    at_rest(world, &namespace).await?;
    for width in [1, 4] {
        world.resize(&namespace, "Clean", &json!(width)).await?;
        at_rest(world, &namespace).await?;
    }
    let mut pes = world.list::<ProcessingElement>(&namespace).await?;
    pes.sort_by_key(|pe| pe.spec.id);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &namespace);
    for (pe, stimulus) in pes.iter().zip(["streams-test/fail", "streams-test/succeed", "delete"]) {
        let Some(pod) = pe.status.as_ref().and_then(|status| status.pod_name.clone()) else { continue };
        if stimulus == "delete" {
            pods.delete(&pod, &DeleteParams::default()).await?;
        } else {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {stimulus: "3"}}}));
            pods.patch(&pod, &PatchParams::default(), &patch).await?;
        }
    }
    let picture = at_rest(world, &namespace).await?;
    world.leave(&namespace).await?;
    Ok(picture)
}

/// The picture of a job that has not changed for a while.
async fn at_rest(world: &World, namespace: &str) -> Result<Picture> {
    let deadline = Instant::now() + WITHIN;
    let mut last: Option<(Picture, Instant)> = None;
    loop {
        let now = world.picture(namespace).await?;
        let standing = Standing::of(&world.job(namespace).await?.unwrap_or_default());
        let enough = if standing.is_ready { UNCHANGED_FOR / 4 } else { UNCHANGED_FOR };
        match &last {
            Some((picture, since)) if *picture == now && (since.elapsed() >= enough || Instant::now() > deadline) => {
                return Ok(now);
            }
            Some((picture, _)) if *picture == now => {}
            _ if Instant::now() > deadline => bail!("the job does not come to rest: {}", standing.says),
            _ => last = Some((now, Instant::now())),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
