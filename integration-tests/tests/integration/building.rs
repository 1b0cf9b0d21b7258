//! Programs of this workspace are built as cargo builds them for the tests.

use crate::support::supervisor;
use anyhow::{Context as _, Result};
use integration_tests::cargo;
use std::path::Path;
use streams_control_plane::process::StateDirectory;

#[tokio::test]
async fn programs_are_built_for_the_same_profile_into_the_same_directory() -> Result<()> {
    let state = StateDirectory::create(&supervisor())?;
    let executables = cargo::build(&supervisor(), &state, &["integration-tests"]).await?;
    let built = executables.get("demo").context("it is not among the executables")?;
    assert_eq!(built, Path::new(env!("CARGO_BIN_EXE_demo")));
    Ok(())
}

#[tokio::test]
async fn a_package_that_cannot_be_built_is_named() -> Result<()> {
    let state = StateDirectory::create(&supervisor())?;
    let failure = cargo::build(&supervisor(), &state, &["no-such-package"]).await.err().context("it was built")?;
    assert!(failure.to_string().contains("no-such-package"), "{failure:#}");
    Ok(())
}
