//! Do the manifests and the documents about them belong together?

use crate::files::{File, assert_none, line_at, read, root};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;

const DOCKERFILE: &str = "deploy/Dockerfile";
/// Folders with a kustomization, which lists all that is in them.
const KUSTOMIZATIONS: [&str; 12] = [
    "deploy/base",
    "deploy/crds",
    "deploy/components/elasticity-tls",
    "deploy/components/high-availability",
    "deploy/components/monitoring",
    "deploy/components/single-namespace",
    "deploy/components/tls",
    "deploy/overlays/elasticity-tls",
    "deploy/overlays/high-availability",
    "deploy/overlays/monitoring",
    "deploy/overlays/single-namespace",
    "deploy/overlays/tls",
];
/// Documents that tell people what to type.
const DOCUMENTS: [&str; 6] = ["README.md", "CONTRIBUTING.md", "deploy/README.md", OPERATIONS, SECURITY, SIZING];
/// The document that explains alerts.
pub(crate) const OPERATIONS: &str = "docs/operations.md";
/// The document that says who is let in where.
const SECURITY: &str = "docs/security.md";
/// The document that says by which figures options are chosen.
pub(crate) const SIZING: &str = "docs/sizing.md";
/// Documents whose words for paths are paths from the root.
const MAPS: [&str; 6] =
    ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "deploy/README.md", OPERATIONS];

/// The file at this path, which has to be there.
pub(crate) fn file(path: &str) -> &'static File {
    read().iter().find(|file| file.path == path).unwrap()
}

fn documents<'a>(paths: &'a [&str]) -> impl Iterator<Item = &'static File> + 'a {
    paths.iter().map(|path| file(path))
}

/// The manifests in a file.
pub(crate) fn manifests(file: &File) -> Vec<Value> {
    file.text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn kustomization(folder: &str) -> Value {
    manifests(file(&format!("{folder}/kustomization.yaml"))).remove(0)
}

/// `kind/name`, in lower case as kubectl takes it, and `name:port` of Services, of all that `deploy/base` has.
fn objects() -> BTreeSet<String> {
    let mut objects = BTreeSet::new();
    for file in read().iter().filter(|file| file.path.starts_with("deploy/base/")) {
        for manifest in manifests(file).iter().filter(|manifest| manifest["metadata"]["name"].is_string()) {
            let kind = manifest["kind"].as_str().unwrap().to_lowercase();
            let name = manifest["metadata"]["name"].as_str().unwrap();
            let ports = manifest["spec"]["ports"].as_array().into_iter().flatten();
            objects.extend(ports.map(|port| format!("{name}:{}", port["port"])));
            objects.insert(format!("{kind}/{name}"));
        }
    }
    objects
}

/// The images that the manifests name, with their tags.
fn images() -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let image = |image: &Value| format!("{}:{}", text(&image["name"]), text(&image["newTag"]));
    kustomization("deploy/base")["images"].as_array().unwrap().iter().map(image).collect()
}

#[test]
fn a_kustomization_lists_all_that_is_in_its_folder() {
    let mut problems = Vec::new();
    for folder in KUSTOMIZATIONS {
        let kustomization = kustomization(folder);
        let of_key = |key: &str| kustomization[key].as_array().into_iter().flatten();
        let listed = of_key("resources").chain(of_key("components"));
        let listed: BTreeSet<&str> = listed.map(|name| name.as_str().unwrap()).collect();
        let there: BTreeSet<&str> = (read().iter())
            .filter_map(|file| file.path.strip_prefix(folder)?.strip_prefix('/'))
            .filter(|name| *name != "kustomization.yaml")
            .collect();
        problems.extend(there.difference(&listed).map(|name| format!("{folder}/{name} is not listed")));
        let lost = listed.difference(&there).filter(|name| !root().join(folder).join(name).is_dir());
        problems.extend(lost.map(|name| format!("{folder} has no {name}")));
    }
    let all = (read().iter()).filter_map(|file| file.path.strip_suffix("/kustomization.yaml"));
    // Dashboards are no manifests; `monitoring` looks at them.
    let unknown = all.filter(|folder| !KUSTOMIZATIONS.contains(folder) && !folder.ends_with("/files/dashboards"));
    problems.extend(unknown.map(|folder| format!("{folder} is a kustomization that is not looked at")));
    assert_none("kustomizations", problems);
}

/// The file can be applied by somebody else than the accounts, which are part of every release of the chart.
#[test]
fn rights_stand_alone() {
    for manifest in manifests(file("deploy/base/rbac.yaml")) {
        assert_eq!(manifest["apiVersion"], "rbac.authorization.k8s.io/v1", "{}", manifest["kind"]);
    }
}

/// A replica that has to stay may be the only one, and then its node could not be drained; nor could the nodes of
/// replicas of which none is ready.
#[test]
fn budgets_let_a_single_replica_go_and_those_that_are_not_ready() {
    let of_base = ["frontend", "fusion-service"].map(|name| manifests(file(&format!("deploy/base/{name}.yaml"))));
    let budgets = of_base.iter().flatten().filter(|manifest| manifest["kind"] == "PodDisruptionBudget");
    let budgets: Vec<&Value> = budgets.map(|budget| &budget["spec"]).collect();
    assert_eq!(budgets.len(), 2);
    for budget in budgets {
        assert_eq!((&budget["maxUnavailable"], &budget["minAvailable"]), (&1.into(), &Value::Null));
        assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    }
    let others = read().iter().filter(|file| file.path.starts_with("deploy/") && file.text.contains("minAvailable"));
    assert_none("budgets of another kind", others.map(|file| file.path.clone()).collect());
}

#[test]
fn documents_name_what_the_manifests_have() {
    let (objects, images) = (objects(), images());
    let object = Regex::new(r"\s((?:service|deployment)/[a-z][a-z-]*)").unwrap();
    let address = Regex::new(r"\b([a-z-]+)\.streams-system(:[0-9]+)").unwrap();
    let label = Regex::new(r"kubectl label namespace \S+ (\S+)=(\S+)").unwrap();
    let image = Regex::new(r"\b(?:streams-frontend|fusion-service):[0-9.]*[0-9]").unwrap();
    let labelled = ["network-policies", "namespace"].map(|name| &file(&format!("deploy/base/{name}.yaml")).text);
    let (mut problems, mut count) = (Vec::new(), 0);
    for document in documents(&DOCUMENTS) {
        let text = &document.text;
        let mut check = |start, said: String, is_there: bool| {
            count += 1;
            if !is_there {
                problems.push(format!("{}: {said}", document.place(line_at(text, start))));
            }
        };
        for found in object.captures_iter(text).map(|found| found.get(1).unwrap()) {
            check(found.start(), found.as_str().to_owned(), objects.contains(found.as_str()));
        }
        for found in address.captures_iter(text) {
            let service = format!("{}{}", &found[1], &found[2]);
            check(found.get(0).unwrap().start(), found[0].to_owned(), objects.contains(&service));
        }
        for found in label.captures_iter(text) {
            let selector = format!("{}: {}", &found[1], &found[2]);
            let is_there = labelled.iter().any(|text| text.contains(&selector));
            check(found.get(0).unwrap().start(), found[0].to_owned(), is_there);
        }
        for found in image.find_iter(text) {
            let is_port = objects.contains(found.as_str());
            check(found.start(), found.as_str().to_owned(), is_port || images.contains(found.as_str()));
        }
    }
    assert!(count > 10, "only {count} names");
    assert_none("what no manifest has", problems);
}

#[test]
fn images_are_built_as_the_documents_say() {
    let build = Regex::new(r"docker build -f (\S+) --target (\S+)\s+-t (\S+) \.").unwrap();
    let dockerfile = std::fs::read_to_string(root().join(DOCKERFILE)).unwrap();
    let commented = Some((DOCKERFILE, dockerfile.as_str()));
    let documents = documents(&DOCUMENTS).map(|file| (file.path.as_str(), file.text.as_str()));
    for (path, text) in documents.chain(commented).filter(|(_, text)| text.contains("docker build")) {
        let mut built = BTreeSet::new();
        for found in build.captures_iter(text) {
            assert_eq!(&found[1], DOCKERFILE, "{path}");
            let stage = format!("AS {}\n", &found[2]);
            assert!(dockerfile.contains(&stage), "{path}: {DOCKERFILE} has no stage {}", &found[2]);
            built.insert(found[3].to_owned());
        }
        assert_eq!(built, images(), "{path}");
    }
}

#[test]
fn images_expose_the_ports_that_containers_have() {
    let dockerfile = std::fs::read_to_string(root().join(DOCKERFILE)).unwrap();
    for stage in ["frontend", "fusion-service"] {
        let of_stage = dockerfile.split(&format!("AS {stage}\n")).nth(1).unwrap();
        let of_stage = of_stage.split("\nFROM ").next().unwrap();
        let exposed = of_stage.lines().find_map(|line| line.strip_prefix("EXPOSE ")).unwrap();
        let exposed: BTreeSet<u64> = exposed.split(' ').map(|port| port.parse().unwrap()).collect();
        let manifests = manifests(file(&format!("deploy/base/{stage}.yaml")));
        let deployment = manifests.iter().find(|manifest| manifest["kind"] == "Deployment").unwrap();
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let ports = containers.iter().flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let ports: BTreeSet<u64> = ports.map(|port| port["containerPort"].as_u64().unwrap()).collect();
        assert_eq!(exposed, ports, "{stage}");
    }
}

#[test]
fn paths_in_documents_lead_somewhere() {
    // Not what comes of a build, and not what is to be put in: `fusion-service/fuzzing/regressions/TARGET/`.
    let path = r"`((?:\.ci|deploy|docs|frontend|fusion-service|fuzz|integration-tests|proto)/[a-z0-9._/-]*)";
    let path = Regex::new(path).unwrap();
    let (mut problems, mut count) = (Vec::new(), 0);
    for document in documents(&MAPS) {
        // What was removed is named in the list of changes, and is not there.
        let text = document.text.split("\n### Removed").next().unwrap();
        for found in path.captures_iter(text) {
            count += 1;
            // A test binary is named without its ending.
            let is_there = ["", ".rs"].iter().any(|ending| root().join(format!("{}{ending}", &found[1])).exists());
            if !is_there {
                let place = document.place(line_at(text, found.get(0).unwrap().start()));
                problems.push(format!("{place}: {}", &found[1]));
            }
        }
    }
    assert!(count > 40, "only {count} paths");
    assert_none("paths that lead nowhere", problems);
}
