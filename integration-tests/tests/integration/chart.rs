//! What Helm makes of the chart, and kubectl of the overlays.
//!
//! Helm is built from the Go module proxy (`integration-tests/helm`) into the target directory, which takes four
//! minutes on two cores once; the variable `HELM` may name a ready one. So the tests with Helm run when they are asked
//! for, after changes of the chart or of `deploy/base`:
//!
//! ```text
//!   cargo test --workspace --test integration chart -- --ignored
//! ```
//!
//! What can be seen of the chart without Helm is seen by `chart` of the tests of the repository, at every change.

use crate::support::{control_plane, supervisor};
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use streams_control_plane::binaries::Tool;
use streams_control_plane::{ControlPlane, Options};
use tokio::sync::OnceCell;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/streams-operator");
/// The module of which Helm is built.
const HELM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm");
/// The namespace of `deploy/base`.
const SYSTEM: &str = "streams-system";
const RELEASE: &str = "streams-operator";
/// The oldest Kubernetes that the chart is for; without a cluster Helm takes one that is older.
const OLDEST: &str = "1.30.0";

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Runs a command to its end and gives what it prints.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?} ended with {}:\n{errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Helm, built if need be.
async fn helm() -> Result<&'static Path> {
    static BUILT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
    let built = BUILT.get_or_init(|| async { build_helm().map_err(|error| format!("{error:#}")) });
    built.await.as_deref().map_err(|error| anyhow!("no Helm: {error}"))
}

fn build_helm() -> Result<PathBuf> {
    if let Some(helm) = std::env::var_os("HELM") {
        return Ok(helm.into());
    }
    let helm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&helm).arg("helm.sh/helm/v3/cmd/helm");
    go.current_dir(HELM).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false").env("GOWORK", "off");
    run(&mut go).map(|_| helm)
}

/// Manifests as objects. Arguments of programs are in any order, but for the first.
fn objects(manifests: &str) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests)?;
    let mut objects = Objects::new();
    for mut object in documents.into_iter().filter(|document| !document.is_null()) {
        let text = |place: &str| object.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = [text("/kind"), text("/metadata/namespace"), text("/metadata/name")].join("/");
        if let Some(arguments) =
            object.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut)
        {
            arguments.sort_by_key(|argument| {
                let argument = argument.as_str().unwrap_or_default().to_owned();
                (argument.starts_with("--"), argument)
            });
        }
        ensure!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    Ok(objects)
}

/// What the chart makes with these values, for a release in `namespace`.
async fn rendered(namespace: &str, values: &Value) -> Result<Objects> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("values.json");
    fs::write(&file, values.to_string())?;
    let mut helm = Command::new(helm().await?);
    helm.args(["template", RELEASE, CHART, "--namespace", namespace, "--kube-version", OLDEST, "--values"]).arg(&file);
    objects(&run(&mut helm)?)
}

/// What a kustomization makes.
async fn built(folder: &str) -> Result<Objects> {
    let kubectl = control_plane().await?.executable(Tool::Kubectl);
    objects(&run(Command::new(kubectl).arg("kustomize").arg(Path::new(DEPLOY).join(folder)))?)
}

/// A deployment of `deploy/base`.
fn deployment<'a>(objects: &'a Objects, name: &str) -> Result<&'a Value> {
    objects.get(&format!("Deployment/{SYSTEM}/{name}")).with_context(|| format!("no {name}"))
}

#[tokio::test]
async fn each_overlay_makes_of_the_base_what_it_is_for() -> Result<()> {
    let base = built("base").await?;
    let services = ["streams-frontend", "fusion-service"];
    for (overlay, place, of_base, expected) in [
        ("high-availability", "/spec/replicas", json!(2), json!(3)),
        ("tls", "/spec/template/spec/containers/0/volumeMounts", Value::Null, json!("/tls")),
        ("elasticity-tls", "/spec/template/spec/containers/0/volumeMounts", Value::Null, json!("/elasticity-tls")),
        ("single-namespace", "/spec/template/spec/containers/0/env", Value::Null, json!("streams-jobs")),
        ("monitoring", "/spec/replicas", json!(2), json!(2)),
    ] {
        let objects = built(&format!("overlays/{overlay}")).await?;
        let missing: Vec<&String> = base.keys().filter(|key| !objects.contains_key(*key)).collect();
        let changed = services.iter().filter(|name| deployment(&base, name).ok() != deployment(&objects, name).ok());
        let (changed, frontend) = (changed.count(), deployment(&objects, "streams-frontend")?);
        let there = frontend.pointer(place).context("nothing there")?;
        // A list of things, of which one is what is expected.
        let is_there = there == &expected || there.to_string().contains(&expected.to_string());
        ensure!(is_there, "{overlay}: {there}");
        ensure!(
            of_base.is_null() || deployment(&base, "streams-frontend")?.pointer(place) == Some(&of_base),
            "{overlay}"
        );
        let (gone, expected): (&[&str], _) = match overlay {
            "single-namespace" => (&["ClusterRoleBinding//streams-frontend"], 1),
            "elasticity-tls" => (&[], 1),
            "monitoring" => (&[], 0),
            _ => (&[], 2),
        };
        ensure!(
            missing == gone && changed == expected,
            "{overlay}: {missing:?} are gone, {changed} Deployments changed"
        );
    }
    Ok(())
}

/// What the ports of this Service say of their protocols.
fn protocols<'a>(objects: &'a Objects, namespace: &str, name: &str) -> Result<Vec<Option<&'a str>>> {
    let service = objects.get(&format!("Service/{namespace}/{name}")).context("no Service")?;
    let ports = service["spec"]["ports"].as_array().context("no ports")?;
    Ok(ports.iter().map(|port| port["appProtocol"].as_str()).collect())
}

/// A mesh or a proxy that goes by it would take TLS for something else, and cut the connection.
#[tokio::test]
async fn clear_text_is_said_of_a_port_only_if_it_is_spoken_there() -> Result<()> {
    let (clear, tls) = (Some("kubernetes.io/h2c"), Some("https"));
    for (folder, of_fusion_service, of_frontend) in
        [("base", clear, clear), ("overlays/tls", tls, clear), ("overlays/elasticity-tls", clear, tls)]
    {
        let objects = built(folder).await?;
        let said = protocols(&objects, SYSTEM, "fusion-service")?;
        ensure!(said == [of_fusion_service, None], "{folder}: {said:?}");
        let said = protocols(&objects, SYSTEM, "streams-frontend")?;
        ensure!(said == [of_frontend, None, None, None], "{folder}: {said:?}");
    }
    Ok(())
}

/// A node that no replica may run on, such as that of a control plane, has none. If it counted, no other could have
/// more than one, and a roll-out, which starts pods before it ends others, would wait for ever.
#[tokio::test]
async fn replicas_that_have_to_be_apart_wait_for_no_node_that_takes_none() -> Result<()> {
    let objects = built("overlays/high-availability").await?;
    for name in ["streams-frontend", "fusion-service"] {
        let constraints = deployment(&objects, name)?.pointer("/spec/template/spec/topologySpreadConstraints");
        let constraints = constraints.and_then(Value::as_array).with_context(|| format!("{name} is not spread"))?;
        let strict: Vec<&Value> =
            constraints.iter().filter(|constraint| constraint["whenUnsatisfiable"] == "DoNotSchedule").collect();
        ensure!(strict.len() == 1, "{name}: {constraints:?}");
        for constraint in strict {
            ensure!(constraint["nodeTaintsPolicy"] == "Honor", "{name}: {constraint}");
            ensure!(constraint["matchLabelKeys"] == json!(["pod-template-hash"]), "{name}: {constraint}");
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn with_default_values_the_chart_makes_what_the_base_has() -> Result<()> {
    let (mut base, mut chart) = (built("base").await?, rendered(SYSTEM, &json!({})).await?);
    // Who removes a release does not mean all that is in its namespace.
    base.remove(&format!("Namespace//{SYSTEM}")).context("no namespace")?;
    for (_, definition) in chart.iter_mut().filter(|(key, _)| key.starts_with("CustomResourceDefinition/")) {
        let annotations = definition["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
        ensure!(annotations == Some(json!({"helm.sh/resource-policy": "keep"})), "{annotations:?}");
    }
    ensure!(base.keys().eq(chart.keys()), "{:?}\n{:?}", base.keys(), chart.keys());
    for (key, object) in &base {
        ensure!(chart.get(key) == Some(object), "{key}:\n{object:#}\n{:#}", chart[key]);
    }
    Ok(())
}

#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn whatever_the_values_the_api_server_takes_the_objects() -> Result<()> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("chart").await?;
    let everything = json!({
        "watchNamespaces": [namespace],
        "listenAddress": "::",
        "labels": {"owner": "somebody"},
        "imagePullSecrets": [{"name": "registry"}],
        "rbac": {"clusterNameSuffix": "-two"},
        "tls": {"enabled": true, "serverName": "fusion.example.com"},
        "frontend": {
            "image": {"repository": "registry.example.com/frontend", "tag": "1", "pullPolicy": "Always"},
            "replicas": 3,
            "options": {
                "authenticate": "token",
                "deny-bundle-address": ["10.0.0.0/8", "192.168.0.0/16"],
                "allow-http-bundles": true,
                "allow-adl-v4000": false,
                "max-generation-mib": 1_048_576,
                "cpu-share": 0.25,
            },
            "elasticityTls": {"enabled": true, "clientCertificates": true},
            "bundles": {"claim": "bundles"},
            "bundleStore": {"claim": "store"},
            "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4317"}],
            "serviceAccount": {"annotations": {"example.com/identity": "frontend"}},
            "podAnnotations": {"prometheus.io/scrape": "true"},
            "podLabels": {"tier": "control"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "priorityClassName": "system-cluster-critical",
            "podDisruptionBudget": {"maxUnavailable": "50%"},
        },
        "fusionService": {"options": {"workers": null}, "podDisruptionBudget": {"enabled": false}},
        "networkPolicies": {"metrics": [{"namespaceSelector": {}}]},
        "monitoring": {
            "podMonitor": {"enabled": true, "interval": "30s"},
            "prometheusRule": {"enabled": true, "alertLabels": {"team": "streams"}},
            "dashboards": {"enabled": true},
        },
    });
    let nothing = json!({
        "crds": {"enabled": false},
        "rbac": {"create": false},
        "networkPolicies": {"enabled": false},
        "frontend": {"topologySpreadConstraints": [], "resources": null, "podDisruptionBudget": {"enabled": false}},
        "tls": {"enabled": true, "verifyCallers": false},
    });
    let folder = tempfile::tempdir()?;
    for (name, values, least) in [("default", json!({}), 30), ("everything", everything, 34), ("nothing", nothing, 6)] {
        let mut objects = rendered(&namespace, &values).await?;
        ensure!(objects.len() >= least, "{name}: only {} objects", objects.len());
        if name == "everything" {
            let frontend = &objects[&format!("Deployment/{namespace}/streams-frontend")];
            let arguments = frontend["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
            for argument in [
                "--max-generation-mib=1048576",
                "--cpu-share=0.25",
                "--allow-http-bundles\"",
                "=[::]:50052",
                "--elasticity-tls-client-ca=/elasticity-tls/ca.crt",
            ] {
                ensure!(arguments.contains(argument), "{argument} is not in {arguments}");
            }
            ensure!(!arguments.contains("allow-adl-v4000"), "{arguments}");
            let variables = frontend["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
            let said = json!({"name": "STREAMS_NAMESPACES", "value": namespace});
            ensure!(variables.is_some_and(|variables| variables.contains(&said)), "{variables:?}");
            let said = protocols(&objects, &namespace, "fusion-service")?;
            ensure!(said == [Some("https"), None], "with TLS: {said:?}");
            let said = protocols(&objects, &namespace, "streams-frontend")?;
            ensure!(said == [Some("https"), None, None, None], "with TLS: {said:?}");
        }
        // Kinds of the Prometheus Operator are not known here.
        objects.retain(|_, object| object["apiVersion"] != "monitoring.coreos.com/v1");
        let file = folder.path().join(format!("{name}.json"));
        let items: Vec<Value> = objects.into_values().collect();
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
        let mut kubectl = Command::new(control_plane.executable(Tool::Kubectl));
        kubectl.arg("--kubeconfig").arg(control_plane.kubeconfig());
        kubectl.args(["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f"]);
        run(kubectl.arg(&file)).context(name)?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn values_that_there_are_not_are_refused() -> Result<()> {
    for (values, word) in [
        (json!({"frontend": {"replica": 1}}), "replica"),
        (json!({"frontend": {"options": {"namespace": "a"}}}), "namespace"),
        (json!({"fusionService": {"options": {"worker": 1}}}), "worker"),
        (json!({"crds": {"keep": "yes"}}), "keep"),
        // What YAML makes of 6.10 and of 5.0, neither of which is the tag of an image any more.
        (json!({"frontend": {"options": {"image-version": 6.1}}}), "image-version"),
        (json!({"frontend": {"options": {"image-version": 5}}}), "image-version"),
        (json!({"watchNamespaces": ["team-a, team-b"]}), "watchNamespaces"),
        (json!({"frontend": {"podDisruptionBudget": {"maxUnavailable": "some"}}}), "maxUnavailable"),
        // A policy without labels would let in everybody.
        (json!({"networkPolicies": {"callers": {"streams.ibm.com/elasticity": null}}}), "callers"),
        (json!({"networkPolicies": {"callers": null}}), "callers"),
        // The frontend would not start.
        (json!({"frontend": {"elasticityTls": {"enabled": true, "clientCertificates": true}}}), "authenticate: token"),
    ] {
        let error = rendered(SYSTEM, &values).await.err().with_context(|| format!("{values} is taken"))?;
        ensure!(format!("{error:#}").contains(word), "{values}: {error:#}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn names_that_look_like_numbers_are_names() -> Result<()> {
    let values = json!({
        "watchNamespaces": ["456"],
        "tls": {"enabled": true, "fusionService": {"secretName": "1"}, "frontend": {"secretName": "2"}},
        "frontend": {"bundles": {"claim": "3"}, "bundleStore": {"claim": "4"}, "priorityClassName": "5"},
        "monitoring": {"podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}},
    });
    let objects = rendered("123", &values).await?;
    // An object whose namespace is no text is among those that have none.
    let of_cluster = ["CustomResourceDefinition/", "ClusterRole/", "ClusterRoleBinding/"];
    let lost = objects.keys().filter(|key| key.contains("//") && !of_cluster.iter().any(|kind| key.starts_with(kind)));
    let lost: Vec<&String> = lost.collect();
    ensure!(lost.is_empty(), "{lost:?}");
    let binding = &objects["RoleBinding/456/streams-frontend"];
    ensure!(binding["subjects"][0]["namespace"] == "123", "{binding:#}");
    for (name, priority, expected) in
        [("streams-frontend", json!("5"), &["3", "4", "2"][..]), ("fusion-service", Value::Null, &["1"][..])]
    {
        let pod = &objects[&format!("Deployment/123/{name}")]["spec"]["template"]["spec"];
        ensure!(pod["priorityClassName"] == priority, "{pod:#}");
        let volumes = pod["volumes"].as_array().context("no volumes")?.iter();
        let names = volumes.filter_map(|volume| {
            let claim = volume.pointer("/persistentVolumeClaim/claimName");
            claim.or_else(|| volume.pointer("/secret/secretName"))
        });
        ensure!(names.eq(expected), "{pod:#}");
    }
    Ok(())
}

/// Maps are merged with the defaults, so what these have goes by `null`, and so may be all of a map.
#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn what_maps_have_by_default_can_be_taken_away() -> Result<()> {
    let values = json!({
        "networkPolicies": {"callers": {"streams.ibm.com/elasticity": null, "team": "streams"}},
        "podSecurityContext": null,
        "frontend": {"options": null, "bundleStore": {"claim": "store"}},
    });
    let objects = rendered(SYSTEM, &values).await?;
    let policy = &objects[&format!("NetworkPolicy/{SYSTEM}/streams-frontend")];
    let callers = &policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    ensure!(*callers == json!({"team": "streams"}), "{policy:#}");
    let context = &deployment(&objects, "streams-frontend")?["spec"]["template"]["spec"]["securityContext"];
    ensure!(*context == json!({"fsGroup": 65_532}), "{context}");
    Ok(())
}

/// Definitions come with the release, are updated with it, and stay when it is removed, with the jobs.
#[tokio::test]
#[ignore = "builds Helm, which takes minutes: see the head of the file"]
async fn a_release_is_installed_updated_and_removed() -> Result<()> {
    let control_plane = ControlPlane::start(&supervisor(), &Options::default()).await?;
    let program = helm().await?;
    let of_cluster = |program: &Path, arguments: &[&OsStr]| {
        run(Command::new(program).args(arguments).env("KUBECONFIG", control_plane.kubeconfig()))
    };
    let helm = |arguments: &[&str]| {
        let arguments: Vec<&OsStr> = arguments.iter().chain(&["--namespace", SYSTEM]).map(OsStr::new).collect();
        of_cluster(program, &arguments)
    };
    let kubectl = |arguments: &[&str]| {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        of_cluster(control_plane.executable(Tool::Kubectl), &arguments)
    };
    let short_name =
        || kubectl(&["get", "crd", "streamsprs.streams.ibm.com", "-o", "jsonpath={.spec.names.shortNames}"]);

    // A chart whose definition is another one.
    let folder = tempfile::tempdir()?;
    run(Command::new("cp").arg("-R").arg(CHART).arg(folder.path()))?;
    let older = folder.path().join("streams-operator");
    let definition = older.join("files/crds/streamsprs.yaml");
    fs::write(&definition, fs::read_to_string(&definition)?.replace("- stpr\n", "- older\n"))?;
    let older = older.to_str().context("not UTF-8")?;
    helm(&["install", RELEASE, older, "--create-namespace", "--wait", "--timeout", "3m"])?;
    ensure!(short_name()? == r#"["older"]"#, "{}", short_name()?);
    let sample = format!("{DEPLOY}/samples/job.yaml");
    kubectl(&["apply", "-f", &sample])?;

    helm(&["upgrade", RELEASE, CHART, "--set", "frontend.replicas=3", "--wait", "--timeout", "3m"])?;
    ensure!(short_name()? == r#"["stpr"]"#, "{}", short_name()?);
    let replicas = ["get", "deployment/streams-frontend", "-n", SYSTEM, "-o", "jsonpath={.status.readyReplicas}"];
    ensure!(kubectl(&replicas)? == "3");

    // To an earlier chart without its definitions: those that there are stay, and the next upgrade has them again.
    helm(&["upgrade", RELEASE, older, "--set", "crds.enabled=false", "--wait", "--timeout", "3m"])?;
    ensure!(short_name()? == r#"["stpr"]"#, "{}", short_name()?);
    ensure!(kubectl(&["get", "streamsjobs", "-A", "-o", "name"])?.lines().count() == 1);

    // Somebody else applies them from now on, and says so when something of them changes: it was Helm that wrote it.
    let definitions = format!("{older}/files/crds");
    let applied = ["apply", "--server-side", "-f", definitions.as_str()];
    let refused = kubectl(&applied).err().context("what Helm has written is changed without a conflict")?;
    ensure!(format!("{refused:#}").contains("--force-conflicts"), "{refused:#}");
    let forced: Vec<&str> = applied.into_iter().chain(["--force-conflicts"]).collect();
    kubectl(&forced)?;
    ensure!(short_name()? == r#"["older"]"#, "{}", short_name()?);
    helm(&["upgrade", RELEASE, CHART, "--set", "frontend.replicas=2", "--wait", "--timeout", "3m"])?;
    ensure!(short_name()? == r#"["stpr"]"#, "{}", short_name()?);

    helm(&["uninstall", RELEASE, "--wait"])?;
    ensure!(kubectl(&["get", "deployments", "-n", SYSTEM, "-o", "name"])?.is_empty());
    ensure!(kubectl(&["get", "streamsjobs", "-A", "-o", "name"])?.lines().count() == 1);

    // What was installed by kustomize becomes a release. It looks after what its values say, not after what the
    // kustomization has said: Helm merges variables with those that are there, and takes none of them away.
    kubectl(&["create", "namespace", "streams-jobs"])?;
    kubectl(&["apply", "--server-side", "-k", &format!("{DEPLOY}/overlays/single-namespace")])?;
    let variable = r#"jsonpath={.spec.template.spec.containers[0].env[?(@.name=="STREAMS_NAMESPACES")].value}"#;
    let namespaces = ["get", "deployment/streams-frontend", "-n", SYSTEM, "-o", variable];
    ensure!(kubectl(&namespaces)? == "streams-jobs");
    helm(&["install", RELEASE, CHART, "--take-ownership", "--wait", "--timeout", "3m"])?;
    ensure!(kubectl(&namespaces)?.is_empty(), "{}", kubectl(&namespaces)?);
    ensure!(kubectl(&["get", "streamsjobs", "-A", "-o", "name"])?.lines().count() == 1);
    control_plane.stop().await
}
