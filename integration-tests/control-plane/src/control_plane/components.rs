//! The programs of a control plane and their arguments.

use super::credentials;
use crate::binaries::Tool;
use crate::process::{Process, Program};
use std::path::{Path, PathBuf};

/// One of the programs that make up a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Holds all objects.
    Etcd,
    /// Serves the API.
    KubeApiserver,
    /// Runs the controllers that come with Kubernetes, among them the garbage collector.
    KubeControllerManager,
    /// Binds pods to nodes.
    KubeScheduler,
    /// Imitates the kubelets.
    Kwok,
}

impl Component {
    /// The program to run.
    pub(super) fn tool(self) -> Tool {
        match self {
            Self::Etcd => Tool::Etcd,
            Self::KubeApiserver => Tool::KubeApiserver,
            Self::KubeControllerManager => Tool::KubeControllerManager,
            Self::KubeScheduler => Tool::KubeScheduler,
            Self::Kwok => Tool::Kwok,
        }
    }
}

/// Calls that a program of Kubernetes may make in a second, and at once after a pause.
const QPS: &str = "300";
const BURST: &str = "600";

/// Where etcd listens.
pub(super) fn etcd_socket(state: &Path) -> PathBuf {
    state.join("etcd.sock")
}

/// How to run `component` with its files in `state` and the API server on `port`.
pub(super) fn program(component: Component, executable: &Path, state: &Path, port: u16) -> Program {
    let path = |name: &str| state.join(name).display().to_string();
    let kubeconfig = credentials::administrator(state).display().to_string();
    let service_account_key = path(credentials::SERVICE_ACCOUNT_KEY);
    let authority = path(credentials::AUTHORITY);
    let etcd = format!("unix://{}", etcd_socket(state).display());
    let peers = format!("unix://{}", state.join("peer.sock").display());
    let port = port.to_string();
    let flags: &[(&str, &str)] = match component {
        Component::Etcd => &[
            ("data-dir", &path("etcd")),
            // The data lives as long as the process.
            ("unsafe-no-fsync", "true"),
            ("log-level", "warn"),
            ("listen-client-urls", &etcd),
            ("listen-peer-urls", &peers),
            // Must have the form of an address; nobody uses it.
            ("advertise-client-urls", "http://127.0.0.1:2379"),
        ],
        Component::KubeApiserver => &[
            ("etcd-servers", &etcd),
            // The serving certificate and its authority are made here.
            ("cert-dir", &path(credentials::CERTIFICATES)),
            ("bind-address", "127.0.0.1"),
            ("secure-port", &port),
            // Without it the address of the default route is taken, and there may be none. Loopback is refused; nothing
            // connects to it.
            ("advertise-address", "10.0.0.1"),
            ("service-cluster-ip-range", "10.96.0.0/16"),
            ("authorization-mode", "Node,RBAC"),
            ("token-auth-file", &path(credentials::TOKENS)),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            ("service-account-key-file", &path(credentials::SERVICE_ACCOUNT_PUBLIC_KEY)),
            ("service-account-signing-key-file", &service_account_key),
        ],
        Component::KubeControllerManager => &[
            ("kubeconfig", &kubeconfig),
            // No port, so nothing to collide with.
            ("secure-port", "0"),
            ("leader-elect", "false"),
            // An identity per controller, as in real clusters. With the default limits of the client their tokens would
            // take five seconds.
            ("use-service-account-credentials", "true"),
            ("kube-api-qps", QPS),
            ("kube-api-burst", BURST),
            ("service-account-private-key-file", &service_account_key),
            ("root-ca-file", &authority),
        ],
        Component::KubeScheduler => &[
            ("kubeconfig", &kubeconfig),
            ("secure-port", "0"),
            ("leader-elect", "false"),
            // Each pod that is bound is a call. By default there would be no more than 50 a second.
            ("kube-api-qps", QPS),
            ("kube-api-burst", BURST),
        ],
        Component::Kwok => &[
            ("kubeconfig", &kubeconfig),
            ("config", &path(credentials::STAGES)),
            ("manage-all-nodes", "true"),
            ("node-lease-duration-seconds", "40"),
            // Room for an address per pod.
            ("cidr", "10.128.0.1/9"),
        ],
    };
    Program::new(component.tool().name(), executable)
        .arguments(flags.iter().map(|(flag, value)| format!("--{flag}={value}")))
        .without_proxy()
}

/// Whether the API server has ended because it could not listen.
pub(super) fn port_was_taken(process: &Process) -> bool {
    process.id().is_none() && process.last_lines(50).contains("address already in use")
}
