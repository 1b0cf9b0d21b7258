//! What one compilation may cost, and whether it is still wanted.
//!
//! A gRPC time-out by itself does not stop a computation. Each stage therefore takes a [`Budget`] and asks it while it
//! works. [`Limits`] bound sizes *before* memory is spent on them. [`Budget::check`] ends work that nobody waits for.
//! [`Pace`] calls it rarely enough for inner loops. [`GiveWay`] lets what is more urgent go first at these points,
//! [`Cores`] lend what nobody else needs meanwhile.

use crate::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The largest sizes that the compiler accepts (rules language-5, expansion-33 and service-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of an ADL document.
    pub adl_bytes: u64,
    /// Nesting of XML elements.
    pub depth: u32,
    /// Bytes of one name, attribute value or text.
    pub text_bytes: usize,
    /// Width of one parallel region.
    pub width: u64,
    /// Physical operators of a job.
    pub operators: u64,
    /// Connections between operator ports of a job.
    pub connections: u64,
    /// Bytes of all AADL documents of a job.
    pub aadl_bytes: u64,
    /// Isolation labels of all PEs of a job together: each PE has those of all others.
    pub isolation_labels: u64,
}

/// Bounds that follow from those that can be set. Each keeps what one worker takes for it far below the GiB that it has
/// (rule service-27). Applications need far less.
impl Limits {
    /// Bytes of the names of all operators and streams of a job.
    pub fn name_bytes(&self) -> u64 {
        self.share_of_aadl(16)
    }

    /// Bytes of the texts that a plan has of its PEs: names of operators, placement, environment, exports and imports;
    /// and of the texts that it has besides. A plan is in memory up to three times: as it is remembered, as a message,
    /// and as it is sent.
    pub fn plan_bytes(&self) -> u64 {
        self.share_of_aadl(32)
    }

    /// Bytes of the isolation labels of all PEs.
    pub fn isolation_label_bytes(&self) -> u64 {
        self.share_of_aadl(32)
    }

    /// Bytes of the parts of documents that are kept because several documents have them, of all kinds together.
    pub fn fragment_bytes(&self) -> u64 {
        self.share_of_aadl(8)
    }

    /// Ports of all operators.
    pub fn ports(&self) -> u64 {
        self.operators.saturating_mul(16)
    }

    /// Parallel regions around operators, counted for each operator.
    pub fn regions_around_operators(&self) -> u64 {
        self.operators.saturating_mul(16)
    }

    /// Ids of locations that operators share or keep apart, counted for each operator. Fusion has groups by id, and
    /// what each unit and PE keeps of its ids: together at most 350 bytes for each id of each operator, if all ids
    /// differ. That is 560 MB at 200,000 operators. Applications have a few ids per operator.
    pub fn locations(&self) -> u64 {
        self.operators.saturating_mul(8)
    }

    /// Hosts in sets that fusion chooses from: of each host pool, and what pools of operators that share a host have in
    /// common. Each takes some 112 bytes where every set has one host, in both tables of sets that fusion has at once.
    /// A host of the document has more than 16 bytes there, so pools alone never have too many. Applications have a
    /// handful of pools.
    pub fn hosts_in_sets(&self) -> u64 {
        share(self.adl_bytes, 16, 1 << 20)
    }

    /// Steps from all output ports, in all channels, to what they reach: one for each connection, splitter and Export,
    /// and one for each merger and broadcast on the way. A connection of the ADL that leads to nothing at all is one.
    /// Steps need no memory of their own, but 371,200,000 of them take seconds. Applications need hardly more than
    /// there are connections: between two regions of 10,000 and 2,000 channels, 20,020,000 for 20,000,000 connections.
    pub fn steps(&self) -> u64 {
        self.connections.saturating_add(self.ports()).saturating_mul(16)
    }

    /// Steps that folding the expressions of all imports takes, in all channels: 32 for each operand and operator, and
    /// one for each octet and element of values that is looked at, or of the text that is made. A step takes about a
    /// nanosecond, so 2,147,483,648 of them take a few seconds. Two expressions of ten operands and operators, in each
    /// of 200,000 channels, take 128,000,000, and their texts.
    pub fn folding_steps(&self) -> u64 {
        self.share_of_aadl(2)
    }

    /// Splitters and mergers, in all channels, that consistent regions pass. Channels beside each other that are passed
    /// at once count as one. What is kept of one takes at most 47 bytes, and as much again while it is followed: 390 MB
    /// of 4,100,000. Splitters other than broadcasts are bounded already; besides them applications have few of these
    /// per operator.
    pub fn passed_ends(&self) -> u64 {
        self.splitters().saturating_add(self.operators.saturating_mul(8))
    }

    /// Splitters of all ports. One counts as often as there are splitters that it is under, itself included.
    pub fn splitters(&self) -> u64 {
        share(self.connections, 8, 1_000)
    }

    /// Channels of all splitters. A channel has a connection, or a splitter under it, or nothing inside. So only
    /// channels with nothing inside can be more than connections and splitters together.
    pub fn channels(&self) -> u64 {
        // Positions of channels have 32 bits.
        self.connections.saturating_add(self.splitters()).min(1 << 31)
    }

    fn share_of_aadl(&self, parts: u64) -> u64 {
        share(self.aadl_bytes, parts, 1 << 20)
    }
}

/// A part of a limit. Where the limit is small, as much as `least` of it.
fn share(limit: u64, parts: u64, least: u64) -> u64 {
    (limit / parts).max(limit.min(least))
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            adl_bytes: 64 << 20,
            depth: 256,
            text_bytes: 1 << 20,
            width: 10_000,
            operators: 200_000,
            connections: 20_000_000,
            aadl_bytes: 4 << 30,
            isolation_labels: 4_000_000,
        }
    }
}

/// Limits, deadline and cancellation of one compilation.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Bounds on sizes.
    pub limits: Limits,
    /// When the answer is of no use any more.
    pub deadline: Option<Instant>,
    /// Says when the caller has gone away. Without one, the caller never does.
    pub cancellation: Option<Arc<dyn Cancellation>>,
    /// Help with work that can be divided. Without it, all is done by the thread of the caller. The result is the same.
    pub cores: Option<Arc<dyn Cores>>,
    /// Lets more urgent work go first. Without it, the work goes on until it is done.
    pub give_way: Option<Arc<dyn GiveWay>>,
}

/// Knows whether something more urgent needs the core of a computation. Each program brings its own.
pub trait GiveWay: fmt::Debug + Send + Sync {
    /// Returns as soon as the computation may go on, or nobody wants it any more. [`Budget::check`] calls it on the
    /// thread that computes. Must be cheap if nothing is more urgent.
    fn give_way(&self);

    /// The computation is about to make a job that has `now` of something of which the job that it begins from has
    /// `before`. Whoever lets others go first has that in memory meanwhile.
    fn grows(&self, before: u64, now: u64);
}

/// Lends cores that nobody else needs at the moment. Each program brings its own.
pub trait Cores: fmt::Debug + Send + Sync {
    /// Calls `work` here, and at the same time once for each core that is idle. Returns when all calls have returned.
    /// The calls divide the work among themselves, so it does not matter how many there are.
    fn share(&self, work: &SharedWork<'_>);
}

/// Work that any number of threads may do together. Its argument says whether the thread may go on: a call with a core
/// that was lent asks it before each piece of work, and leaves the rest to others when somebody needs the core. The
/// caller of [`Cores::share`] may always go on.
pub type SharedWork<'a> = dyn Fn(&dyn Fn() -> bool) + Sync + 'a;

/// Says whether the caller of a computation has gone away. Each program brings its own: a server the token of a call, a
/// test a flag.
pub trait Cancellation: fmt::Debug + Send + Sync {
    /// Returns true as soon as nobody wants the result any more. Must be cheap, because stages call it in their loops.
    fn is_cancelled(&self) -> bool;
}

impl Cancellation for AtomicBool {
    fn is_cancelled(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

impl Budget {
    /// A budget with other limits, without deadline.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Checks whether the work should go on, after what is more urgent. It reads the clock, so loops use
    /// [`Budget::pace`] instead.
    ///
    /// # Errors
    ///
    /// The deadline has passed, or the caller has gone away.
    pub fn check(&self) -> Result<(), Error> {
        // Before the rest: the work may have become worthless meanwhile.
        if let Some(urgent) = &self.give_way {
            urgent.give_way();
        }
        if self.cancellation.as_ref().is_some_and(|caller| caller.is_cancelled()) {
            return Err(Error::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// Tells who lets others go first how large the new job is going to be, see [`GiveWay::grows`].
    pub(crate) fn grows(&self, before: u64, now: u64) {
        if let Some(urgent) = &self.give_way {
            urgent.grows(before, now);
        }
    }

    /// Has `work` called here and by idle helpers, see [`Cores::share`].
    pub(crate) fn share(&self, work: &SharedWork<'_>) {
        match &self.cores {
            Some(cores) => cores.share(work),
            None => work(&|| true),
        }
    }

    /// A budget whose caller has gone away already.
    #[cfg(test)]
    pub(crate) fn cancelled() -> Self {
        Self { cancellation: Some(Arc::new(AtomicBool::new(true))), ..Self::default() }
    }

    /// Returns a counter that calls [`Budget::check`] once every few thousand steps.
    pub fn pace(&self) -> Pace<'_> {
        Pace { budget: self, left: Pace::INTERVAL }
    }
}

/// Calls [`Budget::check`] once every few thousand steps.
#[derive(Debug)]
pub struct Pace<'a> {
    budget: &'a Budget,
    left: u32,
}

impl Pace<'_> {
    const INTERVAL: u32 = 8192;

    /// Counts one step of roughly constant cost.
    ///
    /// # Errors
    ///
    /// As for [`Budget::check`].
    #[inline]
    pub fn step(&mut self) -> Result<(), Error> {
        self.steps(1)
    }

    /// Counts several steps at once.
    ///
    /// # Errors
    ///
    /// As for [`Budget::check`].
    #[inline]
    pub fn steps(&mut self, count: u32) -> Result<(), Error> {
        if self.left > count {
            self.left -= count;
            return Ok(());
        }
        self.left = Self::INTERVAL;
        self.budget.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_ends_when_nobody_waits() {
        let budget = Budget::cancelled();
        let mut pace = budget.pace();
        let steps = (0..).take_while(|_| pace.step().is_ok()).count();
        assert!(steps < 10_000, "went on for {steps} steps");
    }

    #[test]
    fn a_passed_deadline_ends_the_work() {
        let budget = Budget { deadline: Some(Instant::now()), ..Budget::default() };
        assert_eq!(budget.check(), Err(Error::DeadlineExceeded));
    }
}
