//! What the tests share.

use anyhow::{Result, anyhow};
use integration_tests::system::Programs;
use integration_tests::system::rights::FrontendRights;
use std::collections::BTreeMap;
use std::time::Duration;
use streams_control_plane::process::Supervisor;
use streams_control_plane::{Component, ControlPlane, Options};
use tokio::sync::OnceCell;

/// For what takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The program that supervises what the tests start: any of this package begins as one if it is asked to.
pub(crate) fn supervisor() -> Supervisor {
    Supervisor::at(env!("CARGO_BIN_EXE_demo"))
}

/// The control plane of this run. Never dropped: its supervisors end it when the test process ends.
pub(crate) async fn control_plane() -> Result<&'static ControlPlane> {
    // A failure is kept as well: it would fail again for each test, after a long time.
    static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    let shared = SHARED.get_or_init(|| async {
        let mut crds = streams_api::crds::crds().map_err(|error| format!("{error:#}"))?;
        crds.push(streams_kubernetes_fake::conformance::crd());
        // Some clusters ask for the right to say who owns an object; the manifests give it to the frontend.
        let admission = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned();
        // Autoscalers look once in 15 s otherwise.
        let autoscaler = "--horizontal-pod-autoscaler-sync-period=1s".to_owned();
        let arguments = BTreeMap::from([
            (Component::KubeApiserver, vec![admission]),
            (Component::KubeControllerManager, vec![autoscaler]),
        ]);
        let options = Options { crds, arguments, ..Options::default() };
        ControlPlane::start(&supervisor(), &options).await.map_err(|error| format!("{error:#}"))
    });
    shared.await.as_ref().map_err(|error| anyhow!("no control plane: {error}"))
}

/// What the frontend may do in the control plane of this run.
pub(crate) async fn frontend_rights() -> Result<&'static FrontendRights> {
    static GIVEN: OnceCell<Result<FrontendRights, String>> = OnceCell::const_new();
    let given = GIVEN.get_or_init(|| async {
        let given = async { FrontendRights::give(control_plane().await?).await };
        given.await.map_err(|error| format!("{error:#}"))
    });
    given.await.as_ref().map_err(|error| anyhow!("no rights for the frontend: {error}"))
}

/// The services, built by the running cargo.
pub(crate) async fn programs() -> Result<&'static Programs> {
    static BUILT: OnceCell<Result<Programs, String>> = OnceCell::const_new();
    let built =
        BUILT.get_or_init(|| async { Programs::build(&supervisor()).await.map_err(|error| format!("{error:#}")) });
    built.await.as_ref().map_err(|error| anyhow!("no services: {error}"))
}
