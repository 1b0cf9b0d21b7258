//! Applications of our own and how their topology prints: what a reader of a change sees when the expansion changes.
//!
//! `UPDATE_EXPECT=1` writes the recorded prints anew; look at the difference before committing it.

use expect_test::expect_file;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::logical::submission;
use streams_compiler::topology::{self, Parameters};

#[test]
fn topologies_print_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/applications");
    for (name, given) in [("telemetry", ""), ("older-dialect", ""), ("telemetry", "lanes=1")] {
        let document = std::fs::read(folder.join(name).with_extension("adl")).unwrap();
        let budget = Budget::default();
        let application = Arc::new(streams_compiler::adl::parse(&document, &budget).unwrap());
        let given_values: BTreeMap<String, String> =
            given.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let bindings = submission::bind(&application, &given_values).unwrap();
        let parameters = Parameters { bindings, ..Parameters::default() };
        let topology = topology::expand(&application, &parameters, &budget).unwrap();
        topology::verify(&topology).unwrap();
        let record = folder.join(format!("{name}{}{given}.topology", if given.is_empty() { "" } else { "-" }));
        expect_file![record].assert_eq(&topology.to_string());
    }
}
