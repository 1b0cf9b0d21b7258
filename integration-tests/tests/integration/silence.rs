//! The connection to the API server dies without a word: mirrors notice it, say that they are old, and come back
//! (rule call-18).

use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use kube::{Api, Config};
use std::future::pending;
use std::time::Duration;
use streams_control_plane::wait::eventually;
use streams_kubernetes::Key;
use streams_kubernetes::client::{self, CallOptions};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::{Scope, Timings, Watch, trimmed};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Seconds instead of half a minute. A watch that begins late on a busy machine is not too old by that.
const TIMINGS: Timings =
    Timings { renewed_after_seconds: 2, starts_within: Duration::from_secs(5), too_old_after: Duration::from_secs(8) };
/// For what takes some of these times, and longer on a machine with a lot else to do.
const WITHIN: Duration = Duration::from_secs(120);

/// Forwards every connection to `port`. While it is frozen nothing goes through, and nobody is told; connections that
/// were frozen once stay so.
async fn forward(listener: TcpListener, port: u16, frozen: watch::Receiver<bool>) -> Result<()> {
    loop {
        let (mut near, _) = listener.accept().await?;
        let mut frozen = frozen.clone();
        tokio::spawn(async move {
            drop(frozen.wait_for(|frozen| !frozen).await?);
            let mut far = TcpStream::connect(("127.0.0.1", port)).await?;
            let freezes = async { drop(frozen.wait_for(|frozen| *frozen).await) };
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => Ok::<_, anyhow::Error>(()),
                () = freezes => pending().await,
            }
        });
    }
}

fn service(name: &str) -> Service {
    let spec =
        ServiceSpec { ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]), ..ServiceSpec::default() };
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

#[tokio::test]
async fn a_mirror_notices_that_its_connection_is_dead() -> Result<()> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("silence").await?;
    let services: Api<Service> = Api::namespaced(control_plane.client().await?, &namespace);
    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let port = config.cluster_url.port_u16().context("the API server has no port")?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    config.cluster_url = format!("https://127.0.0.1:{}", listener.local_addr()?.port()).parse()?;
    config.proxy_url = None;
    let (freeze, frozen) = watch::channel(false);
    let forwarding = tokio::spawn(forward(listener, port, frozen));

    let metrics = Metrics::new("test");
    let mirror: Watch<Service> = Watch::new(&metrics, &[]);
    let running = tokio::spawn({
        let client = client::new(config, CallOptions::default(), &metrics)?;
        let (mirror, scope) = (mirror.clone(), Scope::Namespaces(vec![namespace.clone()]));
        async move { mirror.run(client, scope, None, trimmed::service, TIMINGS, CancellationToken::new()).await }
    });
    let shows = async |name: &str| {
        eventually("the mirror shows it", WITHIN, || async {
            mirror.get(&Key::new(&namespace, name)).context("it does not").map(drop)
        })
        .await
    };
    let is_well = async || {
        eventually("the mirror is not too old", WITHIN, || async {
            let problem = mirror.health(TIMINGS).1;
            ensure!(problem.is_none(), "{problem:?}");
            Ok(())
        })
        .await
    };
    services.create(&PostParams::default(), &service("before")).await?;
    shows("before").await?;
    is_well().await?;

    freeze.send_replace(true);
    services.create(&PostParams::default(), &service("meanwhile")).await?;
    eventually("the mirror says that it is old", WITHIN, || async {
        let problem = mirror.health(TIMINGS).1;
        problem.filter(|problem| problem.contains("nothing heard")).context("it does not").map(drop)
    })
    .await?;
    ensure!(mirror.get(&Key::new(&namespace, "meanwhile")).is_none(), "something went through");

    // Other connections work again; the one of the watch stays dead.
    freeze.send_replace(false);
    shows("meanwhile").await?;
    is_well().await?;
    running.abort();
    forwarding.abort();
    Ok(())
}
