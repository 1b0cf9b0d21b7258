//! What the tests share.

use anyhow::{Result, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use std::time::Duration;
use streams_control_plane::process::Supervisor;
use streams_control_plane::{ControlPlane, Options, User};
use tokio::sync::OnceCell;

/// For what takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A user without any right of its own.
pub(crate) const NOBODY: &str = "nobody";

/// The program that supervises what the tests start.
pub(crate) fn supervisor() -> Supervisor {
    Supervisor::at(env!("CARGO_BIN_EXE_control-plane"))
}

/// The control plane of this run. Never dropped: its supervisors end it when the test process ends.
pub(crate) async fn control_plane() -> Result<&'static ControlPlane> {
    // A failure is kept as well: it would fail again for each test, after a long time.
    static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(|| async {
        let nobody = User { name: NOBODY.to_owned(), groups: vec!["nobodies".to_owned()] };
        let options = Options { crds: vec![widget_crd()?], users: vec![nobody], ..Options::default() };
        ControlPlane::start(&supervisor(), &options).await.map_err(|error| format!("{error:#}"))
    });
    shared.await.as_ref().map_err(|error| anyhow!("no control plane: {error}"))
}

/// A custom resource, to see what the control plane does with one: `Widget` in `test.streams.ibm.com/v1`.
fn widget_crd() -> Result<CustomResourceDefinition, String> {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.streams.ibm.com"},
        "spec": {
            "group": "test.streams.ibm.com",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    serde_json::from_value(crd).map_err(|error| error.to_string())
}
