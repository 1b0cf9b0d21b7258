//! What is measured in a window of time.
//!
//! Knows: the services, what is counted. Must not know: what happens in the window.

use super::beside::Beside;
use super::hostile::Attack;
use super::tally::{Asked, Tally};
use super::usage::Usage;
use crate::soak::figures::Durations;
use crate::soak::metrics::Figures;
use crate::system::System;
use anyhow::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_control_plane::ControlPlane;

/// What was seen in a window beside what the services say themselves.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) beside: Beside,
    /// Resizes of the large job, until they were committed, and until they were rolled out.
    pub(super) committed: Durations,
    pub(super) rolled_out: Durations,
    pub(super) attack: Option<Arc<Attack>>,
}

/// A window.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) name: &'static str,
    pub(super) took: Duration,
    pub(super) usage: Usage,
    /// What the frontend counted.
    pub(super) figures: Figures,
    pub(super) asked: Asked,
    pub(super) seen: Seen,
}

impl Window {
    /// What it has in each minute.
    pub(super) fn a_minute(&self, amount: f64) -> f64 {
        amount * 60.0 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

/// The beginning of a window.
#[derive(Debug)]
pub(super) struct Beginning {
    at: Instant,
    usage: Usage,
    figures: Figures,
}

impl Beginning {
    /// A window begins.
    ///
    /// # Errors
    /// When the frontend does not answer.
    pub(super) async fn now(control_plane: &ControlPlane, system: &System, tally: &Tally) -> Result<Self> {
        let figures = Figures::of(system.frontend()?.http()).await?;
        tally.take();
        Ok(Self { at: Instant::now(), usage: Usage::now(control_plane, system), figures })
    }

    /// It ends.
    ///
    /// # Errors
    /// When the frontend does not answer.
    pub(super) async fn end(
        self,
        name: &'static str,
        control_plane: &ControlPlane,
        system: &System,
        tally: &Tally,
        seen: Seen,
    ) -> Result<Window> {
        let (took, asked) = (self.at.elapsed(), tally.take());
        let usage = Usage::now(control_plane, system).since(&self.usage);
        let figures = Figures::of(system.frontend()?.http()).await?.since(&self.figures);
        Ok(Window { name, took, usage, figures, asked, seen })
    }
}
