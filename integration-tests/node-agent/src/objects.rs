//! ConfigMaps and Secrets that a pod refers to.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// How long a call to the API server may take.
pub(crate) const CALL: Duration = Duration::from_secs(5);

/// What there is in the namespace of a pod.
pub(crate) struct Objects<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
}

/// The entries of a ConfigMap.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    /// They may become others.
    pub(crate) may_change: bool,
}

impl Objects<'_> {
    /// The entries of a ConfigMap; none if it is not there and need not be.
    ///
    /// # Errors
    /// When it is not there and must be, or the API server does not answer.
    pub(crate) async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Entries> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
        let found = timeout(CALL, api.get_opt(name)).await.context("no answer")??;
        let Some(found) = found else {
            if optional == Some(true) {
                return Ok(Entries { may_change: true, ..Entries::default() });
            }
            bail!("there is no ConfigMap {name}");
        };
        let texts = found.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
        let bytes = found.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
        Ok(Entries { entries: texts.chain(bytes).collect(), may_change: found.immutable != Some(true) })
    }

    /// The entries of a Secret; none if it is not there and need not be.
    ///
    /// # Errors
    /// When it is not there and must be, or the API server does not answer.
    pub(crate) async fn secret(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, Vec<u8>>> {
        let api = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let found = timeout(CALL, api.get_opt(name)).await.context("no answer")??;
        match found {
            Some(found) => Ok(found.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()),
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => bail!("there is no Secret {name}"),
        }
    }
}
