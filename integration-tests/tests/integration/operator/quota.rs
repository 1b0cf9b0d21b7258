//! Holding the operator at a step: a quota lets it create so many objects of a kind and no more.
//!
//! | The quota is exhausted for | and a resize comes to |
//! |---|---|
//! | ConfigMaps | a plan that is compiled but cannot be stored |
//! | Services | texts that are written, and no object of a new PE |
//! | Pods | a committed generation whose new pods cannot be created |
//! | requests to resize | nothing |

use super::fixture::{Fixture, WITHIN};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Service};
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use streams_api::Resize;
use streams_control_plane::wait::eventually;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    ConfigMaps,
    Services,
    Pods,
    Requests,
}

/// A quota that is in force until it is lifted.
#[derive(Debug)]
pub(crate) struct Quota {
    api: Api<ResourceQuota>,
}

const NAME: &str = "hold";

impl Quota {
    /// No more than `more` further objects can be created from now on.
    pub(crate) async fn after(it: &Fixture, limited: Limited, more: usize) -> Result<Self> {
        let there = match limited {
            Limited::ConfigMaps => count::<ConfigMap>(it).await?,
            Limited::Services => count::<Service>(it).await?,
            Limited::Pods => count::<Pod>(it).await?,
            Limited::Requests => count::<Resize>(it).await?,
        };
        Self::of(it, limited, there + more).await
    }

    /// No object can be created from now on, whatever goes meanwhile.
    pub(crate) async fn none(it: &Fixture, limited: Limited) -> Result<Self> {
        Self::of(it, limited, 0).await
    }

    async fn of(it: &Fixture, limited: Limited, hard: usize) -> Result<Self> {
        let resource = match limited {
            Limited::ConfigMaps => "configmaps",
            Limited::Services => "services",
            Limited::Pods => "pods",
            Limited::Requests => "count/streamsresizes.streams.ibm.com",
        };
        let hard = hard.to_string();
        let quota = json!({"metadata": {"name": NAME}, "spec": {"hard": {resource: hard}}});
        let api = Api::<ResourceQuota>::namespaced(it.client.clone(), &it.namespace);
        api.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
        eventually("the quota is in force", WITHIN, || async {
            let status = api.get(NAME).await?.status.unwrap_or_default();
            let used = status.used.and_then(|used| used.get(resource).cloned());
            ensure!(status.hard.is_some() && used.is_some(), "nothing is counted yet");
            Ok(())
        })
        .await?;
        Ok(Self { api })
    }

    /// Lifts it.
    pub(crate) async fn lift(self) -> Result<()> {
        self.api.delete(NAME, &DeleteParams::default()).await?;
        eventually("the quota is gone", WITHIN, || async {
            ensure!(self.api.get_opt(NAME).await?.is_none(), "it is still there");
            Ok(())
        })
        .await
    }
}

async fn count<K>(it: &Fixture) -> Result<usize>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(it.client.clone(), &it.namespace);
    Ok(api.list_metadata(&ListParams::default()).await?.items.len())
}
