//! The command line.
//!
//! Every option can also be given by an environment variable, as a Deployment does.
//!
//! Knows: names, defaults and bounds of options. Must not know: what is done with them.

use crate::fusion;
use crate::grpc::access::Access;
use crate::grpc::access::reviewer::ApiServerReviewer;
use crate::option_values::{Namespaces, seconds, seconds_or_none};
use crate::service_endpoints::ServicePort;
use crate::settings::{BundleSettings, JobSettings, PodSettings};
use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use kube::Client;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::client::CallOptions;
use streams_kubernetes::leadership::LeaseOptions;
use streams_kubernetes::watch::Scope;
use streams_process::telemetry;
use streams_process::tls::{Acceptor, ClientFiles, Connector, Pair, ServerFiles};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  In a cluster, as in deploy/base:
    streams-frontend run --fusion-service fusion-service:50051 --fusion-service-endpoints fusion-service:grpc \\
      --pe-api-endpoints streams-frontend:pe-api --pe-api-address $POD_IP --bundle-directory /bundles

  On a laptop, against the cluster of a kubeconfig, bundles from a directory, one namespace:
    streams-frontend run --kube-context kind-dev --namespace demo --no-leader-election \\
      --fusion-service 127.0.0.1:50051 --bundle-directory ./bundles \\
      --elasticity-listen 127.0.0.1:50052 --http-listen 127.0.0.1:8080 --pe-api-address 192.0.2.10 \\
      --pe-api-listen 192.0.2.10:10000 --bundle-repository-listen 192.0.2.10:6379
  192.0.2.10 stands for the address at which pods reach the laptop, which must see their own addresses. Where there is
  none, leave --pe-api-address out and listen at 127.0.0.1: jobs are submitted and resized, but their PEs get neither
  names nor routes nor bundles.

  Install the custom resources:
    streams-frontend crds | kubectl apply --server-side -f -";

/// Runs stream applications on Kubernetes: reconciles Jobs and serves the elasticity and subscription APIs
#[derive(Debug, Parser)]
#[command(name = "streams-frontend", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: RunOptions,
}

impl Arguments {
    /// What to do; without a subcommand, run.
    pub(crate) fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Run(Box::new(self.run)))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reconcile Jobs and serve the elasticity and subscription APIs until SIGTERM or SIGINT (the default)
    #[command(after_help = EXAMPLES)]
    Run(Box<RunOptions>),

    /// Print the manifests of the custom resources
    Crds {
        /// Write a file per kind into this directory instead
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
    },
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    /// Namespace to look after, or several with commas between them; may be given several times. Default, and if it is
    /// empty: all
    #[arg(long = "namespace", env = "STREAMS_NAMESPACES", value_name = "NAMESPACE")]
    pub(crate) namespaces: Vec<Namespaces>,

    /// Context of the kubeconfig to use. Default: its current context, or the service account of the pod
    #[arg(long, env = "STREAMS_KUBE_CONTEXT", value_name = "CONTEXT")]
    pub(crate) kube_context: Option<String>,

    /// Address of the fusion service; may be given several times, and a DNS name may stand for many replicas
    #[arg(
        long = "fusion-service",
        env = "STREAMS_FUSION_SERVICE",
        value_delimiter = ',',
        default_value = "fusion-service:50051",
        value_name = "HOST:PORT"
    )]
    pub(crate) fusion_services: Vec<String>,

    /// Service of the fusion service, and its port by name or by the pods' number: its EndpointSlices are watched, and
    /// while they list replicas, --fusion-service does not count. Default namespace: that of the pod or the kubeconfig
    #[arg(long, env = "STREAMS_FUSION_SERVICE_ENDPOINTS", value_name = "[NAMESPACE/]NAME:PORT")]
    pub(crate) fusion_service_endpoints: Option<ServicePort>,

    #[command(flatten)]
    pub(crate) fusion_tls: FusionTls,

    #[command(flatten)]
    pub(crate) endpoints: Endpoints,

    #[command(flatten)]
    pub(crate) callers: CallerOptions,

    #[command(flatten)]
    pub(crate) elasticity_tls: ElasticityTls,

    #[command(flatten)]
    pub(crate) bundles: BundleSettings,

    #[command(flatten)]
    pub(crate) pods: PodSettings,

    #[command(flatten)]
    pub(crate) jobs: JobSettings,

    #[command(flatten)]
    pub(crate) time_outs: TimeOuts,

    #[command(flatten)]
    pub(crate) lease: Lease,

    #[command(flatten, next_help_heading = "Logs")]
    pub(crate) telemetry: telemetry::Options,
}

/// How the fusion service is trusted. The files are read again when they change.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS to the fusion service")]
pub(crate) struct FusionTls {
    /// Certificates of those who may sign the fusion service's certificate (PEM). Not given: plain text
    #[arg(long, env = "STREAMS_FUSION_SERVICE_TLS_CA", value_name = "FILE")]
    pub(crate) fusion_service_tls_ca: Option<PathBuf>,

    /// Name that its certificate is for. Default: the host of the first --fusion-service
    #[arg(
        long,
        env = "STREAMS_FUSION_SERVICE_TLS_SERVER_NAME",
        requires = "fusion_service_tls_ca",
        value_name = "NAME"
    )]
    pub(crate) fusion_service_tls_server_name: Option<String>,

    /// Certificate chain of the frontend (PEM), for a fusion service that asks its callers for one
    #[arg(long, env = "STREAMS_FUSION_SERVICE_TLS_CERT", value_name = "FILE",
          requires_all = ["fusion_service_tls_ca", "fusion_service_tls_key"])]
    pub(crate) fusion_service_tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, env = "STREAMS_FUSION_SERVICE_TLS_KEY", value_name = "FILE", requires = "fusion_service_tls_cert")]
    pub(crate) fusion_service_tls_key: Option<PathBuf>,
}

impl FusionTls {
    /// Reads the files, if TLS is wanted. `addresses` are those of `--fusion-service`.
    fn connector(&self, addresses: &[String]) -> anyhow::Result<Option<Connector>> {
        let Some(authority) = self.fusion_service_tls_ca.clone() else { return Ok(None) };
        // The options allow neither without the other.
        let pair = self.fusion_service_tls_cert.clone().zip(self.fusion_service_tls_key.clone());
        let pair = pair.map(|(certificate, key)| Pair { certificate, key });
        let host = || addresses.first().and_then(|address| address.rsplit_once(':')).map(|(host, _)| host);
        let name = self.fusion_service_tls_server_name.as_deref().or_else(host).unwrap_or_default();
        let name = name.trim_start_matches("http://").trim_matches(['[', ']']);
        Connector::new(ClientFiles { authority, pair }, name).context("TLS to the fusion service").map(Some)
    }
}

/// What is listened on.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Endpoints")]
pub(crate) struct Endpoints {
    /// Where the elasticity API and the subscription API listen (gRPC)
    #[arg(long, env = "STREAMS_ELASTICITY_LISTEN", default_value = "0.0.0.0:50052", value_name = "ADDRESS:PORT")]
    pub(crate) elasticity_listen: SocketAddr,

    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, env = "STREAMS_HTTP_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub(crate) http_listen: SocketAddr,

    /// Where the PE API listens (HTTP); PEs ask at port 10000 of the addresses below
    #[arg(long, env = "STREAMS_PE_API_LISTEN", default_value = "0.0.0.0:10000", value_name = "ADDRESS:PORT")]
    pub(crate) pe_api_listen: SocketAddr,

    /// Where PEs get bundles (Redis protocol); they ask at port 6379 of the addresses below
    #[arg(long, env = "STREAMS_BUNDLE_REPOSITORY_LISTEN", default_value = "0.0.0.0:6379", value_name = "ADDRESS:PORT")]
    pub(crate) bundle_repository_listen: SocketAddr,

    /// Address at which PEs reach this replica. Without it no PE of any job reaches the frontend: PEs get neither names
    /// nor routes nor bundles, and those of consistent regions are not told anything
    #[arg(long, env = "STREAMS_PE_API_ADDRESS", value_name = "ADDRESS")]
    pub(crate) pe_api_address: Option<IpAddr>,

    /// Service of the frontend's replicas, and the port of the PE API by name or by the pods' number: PEs reach the
    /// replicas that its EndpointSlices list. Needs --pe-api-address: those of consistent regions are led to that of
    /// the replica that leads. Default namespace: that of the pod or the kubeconfig
    #[arg(long, env = "STREAMS_PE_API_ENDPOINTS", value_name = "[NAMESPACE/]NAME:PORT", requires = "pe_api_address")]
    pub(crate) pe_api_endpoints: Option<ServicePort>,
}

/// Who may call the elasticity API and the subscription API.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Callers of the gRPC APIs")]
pub(crate) struct CallerOptions {
    /// How it is known who calls the elasticity API and the subscription API, and what they may
    #[arg(long, env = "STREAMS_AUTHENTICATE", value_enum, default_value_t, value_name = "HOW")]
    pub(crate) authenticate: Authenticate,

    /// Audience that tokens have to be for; may be given several times, and one of them will do. That of the API server
    /// lets callers use the token that every pod has, which then is good for more than these APIs
    #[arg(
        long = "token-audience",
        env = "STREAMS_TOKEN_AUDIENCES",
        value_delimiter = ',',
        default_value = "streams-frontend",
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        value_name = "AUDIENCE"
    )]
    pub(crate) token_audiences: Vec<String>,
}

/// How it is known who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Authenticate {
    /// Not at all: whoever reaches the listener may do everything
    #[default]
    None,
    /// By a token of the cluster (authorization: Bearer TOKEN), and by RBAC: the frontend asks the API server. With
    /// --elasticity-tls-client-ca also by a certificate
    Token,
}

/// How callers trust the frontend, and show who they are. The files are read again when they change.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS of the gRPC APIs")]
pub(crate) struct ElasticityTls {
    /// Certificate chain that the elasticity API and the subscription API show (PEM). Not given: plain text
    #[arg(long, env = "STREAMS_ELASTICITY_TLS_CERT", value_name = "FILE", requires = "elasticity_tls_key")]
    pub(crate) elasticity_tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, env = "STREAMS_ELASTICITY_TLS_KEY", value_name = "FILE", requires = "elasticity_tls_cert")]
    pub(crate) elasticity_tls_key: Option<PathBuf>,

    /// Certificates of those who may sign callers' certificates (PEM): who shows such a certificate needs no token, and
    /// is the user of its common name, in the groups of its organizations. Needs --authenticate=token
    #[arg(long, env = "STREAMS_ELASTICITY_TLS_CLIENT_CA", value_name = "FILE", requires = "elasticity_tls_cert")]
    pub(crate) elasticity_tls_client_ca: Option<PathBuf>,
}

/// How long things may take.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Time-outs")]
pub(crate) struct TimeOuts {
    /// A call to the API server, retries included
    #[arg(long, env = "STREAMS_CALL_SECONDS", default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) call_seconds: Duration,

    /// A compilation for a submission, retries included
    #[arg(long, env = "STREAMS_SUBMIT_CALL_SECONDS", default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) submit_call_seconds: Duration,

    /// A compilation for a resize, retries included
    #[arg(long, env = "STREAMS_RESIZE_CALL_SECONDS", default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) resize_call_seconds: Duration,

    /// A compilation for a resize that has no answer after this time is asked of a second replica as well
    #[arg(long, env = "STREAMS_RESIZE_HEDGE_SECONDS", default_value = "1", value_name = "SECONDS",
          value_parser = seconds_or_none)]
    pub(crate) resize_hedge_seconds: Duration,

    /// Rendering the texts of a generation, retries included
    #[arg(long, env = "STREAMS_RENDER_CALL_SECONDS", default_value = "120", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) render_call_seconds: Duration,

    /// The longest that a request to the elasticity API waits
    #[arg(long, env = "STREAMS_LONGEST_WAIT_SECONDS", default_value = "600", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) longest_wait_seconds: Duration,

    /// How long work that is under way may go on after SIGTERM
    #[arg(long, env = "STREAMS_GRACE_SECONDS", default_value = "20", value_name = "SECONDS", value_parser = seconds_or_none)]
    pub(crate) grace_seconds: Duration,
}

/// How leadership is agreed on.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct Lease {
    /// Lead without asking; only for a single replica
    #[arg(long, env = "STREAMS_NO_LEADER_ELECTION")]
    pub(crate) no_leader_election: bool,

    /// Namespace of the Lease. Default: that of the pod or of the kubeconfig
    #[arg(long, env = "STREAMS_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub(crate) lease_namespace: Option<String>,

    /// Name of the Lease
    #[arg(long, env = "STREAMS_LEASE_NAME", default_value = "streams-frontend", value_name = "NAME")]
    pub(crate) lease_name: String,

    /// Name of this replica. Default: the host name and a number that is new with every start
    #[arg(long, env = "STREAMS_IDENTITY", value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// How long other replicas wait after the last renewal
    #[arg(long, env = "STREAMS_LEASE_SECONDS", default_value = "15", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) lease_seconds: Duration,

    /// How long this replica leads without being able to renew
    #[arg(long, env = "STREAMS_RENEW_DEADLINE_SECONDS", default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) renew_deadline_seconds: Duration,

    /// Time between renewals
    #[arg(long, env = "STREAMS_RENEW_SECONDS", default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) renew_seconds: Duration,
}

impl RunOptions {
    /// Namespaces that are watched.
    pub(crate) fn scope(&self) -> Scope {
        let mut names: Vec<String> = Vec::new();
        for name in self.namespaces.iter().flat_map(|Namespaces(names)| names) {
            // One that is named twice is one: whether all may be read is told by how many there are.
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        if names.is_empty() { Scope::All } else { Scope::Namespaces(names) }
    }

    /// How calls to the API server are made.
    pub(crate) fn calls(&self) -> CallOptions {
        let deadline = self.time_outs.call_seconds;
        CallOptions { deadline, attempt: deadline / 2, ..CallOptions::default() }
    }

    /// Who may call the gRPC APIs, by what the API server of this client says. Once `stopping` is cancelled, no call
    /// waits for that any more.
    pub(crate) fn access(&self, client: &Client, stopping: CancellationToken) -> Access {
        let CallerOptions { authenticate, token_audiences } = &self.callers;
        match authenticate {
            Authenticate::None => Access::Open,
            Authenticate::Token => {
                let reviewer = ApiServerReviewer::new(client.clone(), token_audiences.clone());
                Access::reviewed(Arc::new(reviewer), stopping)
            }
        }
    }

    /// By what connections of callers of the gRPC APIs are secured, if they are.
    ///
    /// # Errors
    /// Certificates cannot be read, or are asked for though nobody is asked who they are.
    pub(crate) fn elasticity_tls(&self) -> anyhow::Result<Option<Acceptor>> {
        let ElasticityTls { elasticity_tls_cert, elasticity_tls_key, elasticity_tls_client_ca } = &self.elasticity_tls;
        // Else whoever shows no certificate may do everything.
        let asks = self.callers.authenticate == Authenticate::Token;
        ensure!(elasticity_tls_client_ca.is_none() || asks, "--elasticity-tls-client-ca needs --authenticate=token");
        // The options allow neither without the other.
        let pair = elasticity_tls_cert.clone().zip(elasticity_tls_key.clone());
        let Some((certificate, key)) = pair else { return Ok(None) };
        let pair = Pair { certificate, key };
        let files = ServerFiles { pair, client_authority: elasticity_tls_client_ca.clone() };
        Acceptor::asking(files).context("TLS of the gRPC APIs").map(Some)
    }

    /// How the fusion service is called.
    ///
    /// # Errors
    /// Certificates cannot be read.
    pub(crate) fn fusion(&self) -> anyhow::Result<fusion::ClientOptions> {
        Ok(fusion::ClientOptions {
            tls: self.fusion_tls.connector(&self.fusion_services)?,
            submit_deadline: self.time_outs.submit_call_seconds,
            resize_deadline: self.time_outs.resize_call_seconds,
            hedge_after: self.time_outs.resize_hedge_seconds,
            render_deadline: self.time_outs.render_call_seconds,
            max_plan: usize::try_from(self.jobs.max_plan_mib << 20).unwrap_or(usize::MAX),
            ..fusion::ClientOptions::new(self.fusion_services.clone())
        })
    }

    /// Name of this replica.
    pub(crate) fn identity(&self) -> String {
        let new = || {
            let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "frontend".to_owned());
            format!("{host}-{}-{}", std::process::id(), jiff::Timestamp::now().as_millisecond())
        };
        self.lease.identity.clone().filter(|name| !name.is_empty()).unwrap_or_else(new)
    }

    /// How leadership is agreed on; `None` without election. The namespace may be left empty: it is that of the pod or
    /// of the kubeconfig.
    ///
    /// # Errors
    /// Timings that do not fit together.
    pub(crate) fn lease(&self) -> anyhow::Result<Option<LeaseOptions>> {
        if self.lease.no_leader_election {
            return Ok(None);
        }
        let options = LeaseOptions {
            namespace: self.lease.lease_namespace.clone().unwrap_or_default(),
            name: self.lease.lease_name.clone(),
            identity: self.identity(),
            duration: self.lease.lease_seconds,
            renew_interval: self.lease.renew_seconds,
            renew_deadline: self.lease.renew_deadline_seconds,
        };
        options.check(self.time_outs.call_seconds).map_err(anyhow::Error::msg)?;
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::long_work::publish::KEPT;
    use crate::run::LAST_WORDS;
    use clap::CommandFactory;
    use streams_kubernetes::leadership::LINGER;

    fn run(arguments: &[&str]) -> RunOptions {
        match Arguments::try_parse_from(["streams-frontend"].iter().chain(arguments)).unwrap().into_command() {
            Command::Run(options) => *options,
            Command::Crds { .. } => panic!("{arguments:?} does not run"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn half_of_tls_is_refused_and_files_are_named() {
        let ca = ["--fusion-service-tls-ca", "/nowhere/ca"];
        let table: [&[&str]; 7] = [
            &["--elasticity-tls-cert", "c"],
            &["--elasticity-tls-key", "k"],
            &["--elasticity-tls-client-ca", "a"],
            &["--fusion-service-tls-server-name", "n"],
            &["--fusion-service-tls-cert", "c", "--fusion-service-tls-key", "k"],
            &[ca[0], ca[1], "--fusion-service-tls-cert", "c"],
            &[ca[0], ca[1], "--fusion-service-tls-key", "k"],
        ];
        for arguments in table {
            let parsed = Arguments::try_parse_from(["streams-frontend"].iter().chain(arguments));
            let error = parsed.unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::MissingRequiredArgument, "{arguments:?}");
        }
        let error = run(&ca).fusion().unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/ca"), "{error:#}");
        assert!(run(&[]).fusion().unwrap().tls.is_none());
    }

    #[test]
    fn who_asks_callers_for_certificates_asks_who_they_are() {
        let pair = ["--elasticity-tls-cert", "/nowhere/c", "--elasticity-tls-key", "/nowhere/k"];
        let authority = ["--elasticity-tls-client-ca", "/nowhere/a"];
        let token = ["--authenticate", "token"];
        // arguments -> part of the error
        let table: [(&[&[&str]], &str); 3] = [
            (&[&pair[..]], "/nowhere/c"),
            (&[&pair[..], &authority[..]], "--elasticity-tls-client-ca needs --authenticate=token"),
            (&[&pair[..], &authority[..], &token[..]], "/nowhere/c"),
        ];
        for (arguments, expected) in table {
            let error = run(&arguments.concat()).elasticity_tls().unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{arguments:?}: {error:#}");
        }
        assert!(run(&token).elasticity_tls().unwrap().is_none());
    }

    #[test]
    fn the_fusion_service_may_answer_with_plans_as_large_as_they_may_be() {
        assert_eq!(run(&["--max-plan-mib", "3"]).fusion().unwrap().max_plan, 3 << 20);
    }

    #[test]
    fn callers_need_no_token_unless_that_is_said_and_then_one_of_this_audience() {
        let token = ["--authenticate", "token"];
        let table: [(&[&str], Authenticate, &[&str]); 4] = [
            (&[], Authenticate::None, &["streams-frontend"]),
            (&["--authenticate", "none"], Authenticate::None, &["streams-frontend"]),
            (&token, Authenticate::Token, &["streams-frontend"]),
            (
                &[token[0], token[1], "--token-audience", "a", "--token-audience", "b,c"],
                Authenticate::Token,
                &["a", "b", "c"],
            ),
        ];
        for (arguments, how, audiences) in table {
            let options = run(arguments).callers;
            assert_eq!(options.authenticate, how, "{arguments:?}");
            assert_eq!(options.token_audiences, audiences, "{arguments:?}");
        }
        for wrong in [["--authenticate", "yes"], ["--token-audience", ""]] {
            assert!(Arguments::try_parse_from(["streams-frontend"].iter().chain(&wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_help_says_what_an_option_needs() {
        let command = Arguments::command();
        let run = command.find_subcommand("run").unwrap();
        let endpoints = run.get_arguments().find(|option| option.get_long() == Some("pe-api-endpoints")).unwrap();
        assert!(endpoints.get_help().unwrap().to_string().contains("Needs --pe-api-address"));
    }

    #[test]
    fn run_is_what_is_done_without_a_subcommand() {
        let arguments = ["--namespace", "a", "--fusion-service", "h:1", "--fusion-service", "i:2"];
        let with: Vec<&str> = ["run"].iter().chain(&arguments).copied().collect();
        for options in [run(&arguments), run(&with)] {
            assert_eq!(options.fusion_services, ["h:1", "i:2"]);
            assert_eq!(options.fusion_service_endpoints, None);
            assert_eq!(options.scope(), Scope::Namespaces(vec!["a".to_owned()]));
        }
        assert_eq!(run(&[]).scope(), Scope::All);
        let twice = run(&["--namespace", "b,a", "--namespace", "a", "--namespace", "b"]);
        assert_eq!(twice.scope(), Scope::Namespaces(vec!["b".to_owned(), "a".to_owned()]));
        let crds = Arguments::try_parse_from(["streams-frontend", "crds"]).unwrap().into_command();
        assert!(matches!(crds, Command::Crds { directory: None }));
    }

    #[test]
    fn namespaces_are_those_of_all_values_and_a_list_of_nothing_is_refused() {
        let table: [(&[&str], &[&str]); 4] =
            [(&["a, b"], &["a", "b"]), (&["a,b", "c"], &["a", "b", "c"]), (&["", "a"], &["a"]), (&[""], &[])];
        for (values, expected) in table {
            let arguments: Vec<&str> = values.iter().flat_map(|value| ["--namespace", *value]).collect();
            let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            let expected = if expected.is_empty() { Scope::All } else { Scope::Namespaces(expected) };
            assert_eq!(run(&arguments).scope(), expected, "{values:?}");
        }
        let error = Arguments::try_parse_from(["streams-frontend", "--namespace", ","]).unwrap_err().to_string();
        assert!(error.contains("'--namespace <NAMESPACE>': '': the name of a namespace is needed"), "{error}");
    }

    /// None of these times can be none at all: nothing would work, and what it said would not name the option.
    #[test]
    fn times_that_leave_no_time_are_refused_by_the_name_of_the_option() {
        let options = [
            "call-seconds",
            "submit-call-seconds",
            "resize-call-seconds",
            "render-call-seconds",
            "longest-wait-seconds",
            "lease-seconds",
            "renew-deadline-seconds",
            "renew-seconds",
        ];
        for option in options {
            for value in ["0", "1e19"] {
                let line = ["streams-frontend".to_owned(), format!("--{option}={value}")];
                let error = Arguments::try_parse_from(line).unwrap_err().to_string();
                let expected = format!("'--{option} <SECONDS>': {value} is not between 0.1 and 86400 seconds");
                assert!(error.contains(&expected), "{error}");
            }
        }
        let times = run(&["--grace-seconds", "0", "--resize-hedge-seconds", "0"]).time_outs;
        assert_eq!((times.grace_seconds, times.resize_hedge_seconds), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn options_are_environment_variables_too() {
        let command = Arguments::command();
        let run = command.find_subcommand("run").unwrap();
        let others = run.get_arguments().filter(|option| option.get_env().is_none());
        assert_eq!(others.filter_map(clap::Arg::get_long).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn the_deployment_uses_options_that_exist() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/frontend.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let deployment: serde_json::Value = serde_saphyr::from_str(text.split("\n---\n").next().unwrap()).unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<&str> =
            container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        // What an option gets from the environment, as an argument.
        let known = Arguments::command().find_subcommand("run").unwrap().clone();
        let of_environment = container["env"].as_array().unwrap().iter().flat_map(|variable| {
            let name = variable["name"].as_str().unwrap();
            let option = known.get_arguments().find(|option| option.get_env().is_some_and(|env| env == name));
            let option = option.unwrap_or_else(|| panic!("{name} is no option")).get_long().unwrap();
            let value = variable["value"].as_str().unwrap_or_else(|| {
                match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap() {
                    "metadata.name" | "metadata.namespace" => "a-name",
                    "status.podIP" => "10.0.0.1",
                    path => panic!("{path}: what is that?"),
                }
            });
            [format!("--{option}"), value.to_owned()]
        });
        let of_environment: Vec<String> = of_environment.collect();
        let deployed: Vec<&str> = arguments.into_iter().chain(of_environment.iter().map(String::as_str)).collect();
        assert_eq!(run(&deployed).fusion_services, ["fusion-service:50051"]);
        assert_eq!(run(&deployed).scope(), Scope::All);
        let defaults = run(&[]);
        let seconds = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        // A replica serves until PEs are led to others, and is asked to stop then (rule repository-7).
        let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
        let time_outs = &defaults.time_outs;
        let serves = time_outs.call_seconds + LINGER + time_outs.grace_seconds;
        assert!(Duration::from_secs(seconds - sleep) > serves);
        // The next leader has heard what this one says before it is asked to stop (rule consistent-region-14).
        let ready = deployment["spec"]["minReadySeconds"].as_u64().unwrap();
        assert!(Duration::from_secs(ready - sleep) > LINGER + LAST_WORDS);
        // What users submit takes three quarters of the memory at most (rules fetch-6 and job-8).
        let bundles = &defaults.bundles;
        let fetched = u64::from(defaults.jobs.download_workers) * bundles.max_bundle_mib + 2 * bundles.max_adl_mib;
        let kept = bundles.bundle_cache_mib + defaults.jobs.adl_cache_mib + defaults.jobs.plan_cache_mib;
        // A worker has a plan, which takes twice as much unpacked, as it came or is stored; or it has texts, three of
        // them whole, with the plan that they are of.
        let unpacked = 2 * defaults.jobs.max_plan_mib;
        let texts = ((3 * fusion::MAX_TEXT + KEPT) >> 20) as u64;
        let of_worker = unpacked + defaults.jobs.max_plan_mib.max(texts);
        let worked_on = u64::from(defaults.jobs.long_workers) * of_worker;
        let limit = container["resources"]["limits"]["memory"].as_str().unwrap();
        let limit: u64 = limit.strip_suffix("Gi").unwrap().parse::<u64>().unwrap() << 10;
        assert!((fetched + kept + worked_on) * 4 <= limit * 3);
    }

    #[test]
    fn the_chart_takes_all_options_that_it_does_not_give_itself() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/streams-operator/values.schema.json");
        let schema: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let names = schema.pointer("/properties/frontend/properties/options/propertyNames/enum").unwrap();
        let taken: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let given = [
            "namespace",
            "kube-context",
            "fusion-service",
            "fusion-service-endpoints",
            "fusion-service-tls-ca",
            "fusion-service-tls-server-name",
            "fusion-service-tls-cert",
            "fusion-service-tls-key",
            "elasticity-tls-cert",
            "elasticity-tls-key",
            "elasticity-tls-client-ca",
            "elasticity-listen",
            "http-listen",
            "pe-api-listen",
            "bundle-repository-listen",
            "pe-api-address",
            "pe-api-endpoints",
            "bundle-directory",
            "bundle-store",
            "bundle-repository-directory",
            // Its rights are for this name.
            "lease-name",
            "lease-namespace",
            "identity",
            // During each update there are two pods at least.
            "no-leader-election",
            "log-format",
        ];
        let command = Arguments::command();
        let run = command.find_subcommand("run").unwrap();
        let mut options: Vec<&str> = run.get_arguments().filter_map(clap::Arg::get_long).collect();
        options.retain(|option| !given.contains(option));
        options.sort_unstable();
        assert_eq!(taken, options);
    }

    #[test]
    fn the_default_timings_of_the_lease_fit_together() {
        let lease = run(&["--lease-namespace", "here"]).lease().unwrap().unwrap();
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("here", "streams-frontend"));
        assert!(run(&["--no-leader-election"]).lease().unwrap().is_none());
        assert!(run(&["--lease-seconds", "5"]).lease().is_err());
        let short = ["--lease-seconds", "2", "--renew-deadline-seconds", "1.5", "--renew-seconds", "0.3"];
        let short: Vec<&str> = short.into_iter().chain(["--call-seconds", "1.5"]).collect();
        assert!(run(&short).lease().is_ok());
    }
}
