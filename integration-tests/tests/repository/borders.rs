//! Which crates a crate must not depend on, directly or through others.
//!
//! The borders of ARCHITECTURE.md that are crates are kept by Cargo as long as no manifest opens them. This test
//! refuses a manifest that does.

use crate::files::{assert_none, root};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, PackageId};
use std::collections::{BTreeMap, BTreeSet};

/// What waits for others: runtimes, networks, servers.
const ASYNCHRONOUS: [&str; 7] = ["tokio", "tokio-util", "tonic", "hyper", "reqwest", "axum", "tower"];
/// The command line.
const ARGUMENTS: [&str; 1] = ["clap"];
/// The API server.
const KUBERNETES: [&str; 2] = ["kube", "k8s-openapi"];
/// The stages of the compiler, and what knows them.
const COMPILER: [&str; 3] = ["streams-compiler", "streams-graph", "fusion-service"];
/// Custom resources, and what knows them.
const RESOURCES: [&str; 2] = ["streams-api", "streams-frontend"];

/// The crate, and what its normal dependencies must not lead to.
const BORDERS: [(&str, &[&[&str]]); 15] = [
    ("streams-compiler", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES]),
    ("streams-graph", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES]),
    ("spl-expression", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER]),
    ("streams-bundle", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER]),
    ("streams-region-names", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER]),
    ("fusion-service", &[&KUBERNETES, &RESOURCES]),
    // `integration-tests` has a client whose calls fail as a test says.
    ("streams-frontend", &[&COMPILER, &["integration-tests"]]),
    ("streams-broker", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER]),
    ("streams-consistent-region", &[&ASYNCHRONOUS, &ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER]),
    ("streams-bundle-repository", &[&ARGUMENTS, &KUBERNETES, &RESOURCES, &COMPILER, &["streams-proto"]]),
    ("streams-kubernetes", &[&RESOURCES, &COMPILER, &["streams-proto", "tonic"]]),
    ("streams-process", &[&KUBERNETES, &RESOURCES, &COMPILER, &["streams-proto"]]),
    ("streams-control-plane", &[&RESOURCES, &COMPILER, &["streams-proto"]]),
    ("streams-pe-double", &[&KUBERNETES, &RESOURCES, &COMPILER, &["streams-proto"]]),
    ("streams-node-agent", &[&RESOURCES, &COMPILER, &["streams-proto", "streams-pe-double"]]),
];

/// Everything that the normal dependencies of a crate lead to, with who leads there.
fn reached(metadata: &Metadata, from: &PackageId) -> BTreeMap<PackageId, PackageId> {
    let nodes = &metadata.resolve.as_ref().unwrap().nodes;
    let mut reached = BTreeMap::new();
    let mut open = vec![from.clone()];
    while let Some(at) = open.pop() {
        let node = nodes.iter().find(|node| node.id == at).unwrap();
        for dependency in &node.deps {
            let is_normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            // A macro runs while its user is compiled; what it depends on is not part of the result.
            if is_normal && !is_macro(metadata, &dependency.pkg) && !reached.contains_key(&dependency.pkg) {
                reached.insert(dependency.pkg.clone(), at.clone());
                open.push(dependency.pkg.clone());
            }
        }
    }
    reached
}

fn is_macro(metadata: &Metadata, package: &PackageId) -> bool {
    metadata[package].targets.iter().any(|target| target.is_proc_macro())
}

#[test]
fn crates_depend_on_nothing_beyond_their_borders() {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).features(CargoOpt::AllFeatures);
    // What the images are built for; dependencies of other systems need not be there.
    command.other_options(["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(str::to_owned));
    let metadata = command.exec().unwrap();
    let mut problems = Vec::new();
    for (name, forbidden) in BORDERS {
        let forbidden: BTreeSet<&str> = forbidden.iter().copied().flatten().copied().collect();
        let package = metadata.workspace_packages().into_iter().find(|package| *package.name == name).unwrap();
        for (dependency, user) in reached(&metadata, &package.id) {
            let (dependency, user) = (&metadata[&dependency].name, &metadata[&user].name);
            if forbidden.contains(dependency.as_str()) {
                problems.push(format!("{name} must not depend on {dependency}, which {user} brings"));
            }
        }
    }
    assert_none("open borders", problems);
}
