//! Expands sketches of applications.

use crate::adl;
use crate::budget::Budget;
use crate::error::Error;
use crate::logical::Application;
use crate::logical::submission::bind;
use crate::topology::{Parameters, Topology};
use std::sync::Arc;
use streams_test_support::application::Sketch;

/// What the tests do with a sketch.
pub(super) trait Expand {
    /// The application as written.
    fn application(&self) -> Result<Arc<Application>, Error>;

    /// Its topology, within a budget.
    fn expand_within(&self, budget: &Budget) -> Result<Topology, Error>;

    /// The topology for other widths, made from the one that is running.
    fn expand_again(&self, before: &Topology) -> Result<Topology, Error>;

    /// Its topology.
    fn expand(&self) -> Result<Topology, Error> {
        self.expand_within(&Budget::default())
    }
}

fn parameters(sketch: &Sketch, application: &Arc<Application>) -> Result<Parameters, Error> {
    let bindings = bind(application, &sketch.given)?;
    Ok(Parameters { bindings, widths: sketch.widths.clone(), ..Parameters::default() })
}

impl Expand for Sketch {
    fn application(&self) -> Result<Arc<Application>, Error> {
        adl::parse(self.adl().as_bytes(), &Budget::default()).map(Arc::new)
    }

    fn expand_within(&self, budget: &Budget) -> Result<Topology, Error> {
        let application = self.application()?;
        crate::topology::expand(&application, &parameters(self, &application)?, budget)
    }

    fn expand_again(&self, before: &Topology) -> Result<Topology, Error> {
        let parameters = parameters(self, &before.application)?;
        crate::topology::expand_again(before, &parameters, &Budget::default())
    }
}
