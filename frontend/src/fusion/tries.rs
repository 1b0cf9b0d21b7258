//! One call, tried at replicas until one answers (rule call-15).
//!
//! A try that fails is followed at once by one at a replica that was not tried; once all were, by a pause. A replica
//! that lacks contents gets them, and no other does. A resize that takes long is asked of a second replica as well, as
//! soon as one has room, and the first answer counts; a replica that was asked long before the one that answers counts
//! as failed. A request during which replicas were lost twice is not sent to another one: perhaps it is what ends them.
//! Whoever works on it already may still answer. Nor is one at which replicas failed inside twice; a replica that did
//! so counts as failed only once another one has answered the same request. Who has another compiler is not asked
//! again. Once no certificate of a replica is trusted the call ends. What a replica refuses, but not in the words of
//! the contract, is refused once another one has said so, too: one with a defect decides nothing for good.
//!
//! Knows: replicas, verdicts. Must not know: what is called.

use super::error::{FusionError, Verdict, verdict};
use super::replicas::{Chosen, Lane, Replica, Replicas};
use super::trace::{Ask, Asked, IdleTime};
use crate::call_figures::MadeCalls;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_proto::fusion::v1::fusion_service_client::FusionServiceClient;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::Instrument;

/// The largest request allowed by the contract, with room.
const MAX_REQUEST: usize = 192 << 20;
/// How often replicas are lost during one request before nobody else is asked.
const MOST_LOST: usize = 2;
/// How often replicas fail inside during one request before nobody else is asked.
const MOST_DEFECTS: usize = 2;
/// How many replicas refuse a request, but not in the words of the contract, before nobody else is asked.
const MOST_REFUSALS: usize = 2;
/// The pauses after rounds through all replicas.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The transport ends a call a moment before its deadline.
const MOMENT: Duration = Duration::from_millis(20);
/// How often a second replica is looked for while none has room: after this part of the time after which it is asked.
const LOOKS: u32 = 4;

/// What is known of a call besides what it asks.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The method of the service.
    pub(super) method: &'static str,
    /// Where each try is counted.
    pub(super) figures: MadeCalls,
    /// Digest of the ADL: whoever has worked on it knows it.
    pub(super) application: Bytes,
    pub(super) lane: Lane,
    /// When all tries end.
    pub(super) deadline: Instant,
    /// After this time a second replica is asked as well.
    pub(super) hedge_after: Option<Duration>,
    /// It answers in parts, and sees itself whether they stop: a try may take all the time that is left.
    pub(super) is_stream: bool,
    /// The longest message that is read, in bytes. A longer one would be so everywhere.
    pub(super) max_answer: usize,
}

/// A try that is over.
struct Outcome<T> {
    chosen: Chosen,
    /// Contents were sent.
    is_full: bool,
    result: Result<T, Verdict>,
}

/// A replica that works on the call.
struct UnderWay {
    replica: Arc<Replica>,
    /// When it was asked, with contents or without.
    since: Instant,
}

/// The replicas that work on the call. There are never two tries of one.
#[derive(Default)]
struct AllUnderWay(Vec<UnderWay>);

/// What has become of the tries until now.
struct Tries {
    /// Who was asked in this round, and has failed.
    tried: BTreeSet<SocketAddr>,
    /// Who was asked at all.
    asked: BTreeSet<SocketAddr>,
    pauses: ExponentialBackoff,
    /// The shortest time after which an overloaded replica of this round wants to be asked again.
    delay: Option<Duration>,
    /// Who was lost while it worked on the call, first to last.
    lost: Vec<SocketAddr>,
    /// Who is left alone if another one answers the request: who failed inside, or refused it, but not in the words of
    /// the contract.
    suspects: Vec<Arc<Replica>>,
    /// How often one failed inside.
    defects: usize,
    /// Who has refused the request, but not in the words of the contract, and what the last of them said.
    refused_by: BTreeSet<SocketAddr>,
    of_refusal: Option<FusionError>,
    /// Who has another compiler than is asked for, and what the last of them said.
    other_compilers: BTreeSet<SocketAddr>,
    of_other_compiler: Option<FusionError>,
    /// Who shows a certificate that is not trusted, and what was said of the last of them.
    untrusted: BTreeSet<SocketAddr>,
    of_untrusted: Option<FusionError>,
    /// Why nobody else is asked.
    end: Option<FusionError>,
    last: Option<FusionError>,
}

/// A try that was not answered.
struct Ended {
    chosen: Chosen,
    /// Contents were sent.
    is_full: bool,
    /// No other replica works on the call.
    is_alone: bool,
}

/// What follows a try.
enum Next {
    GiveUp(FusionError),
    SendContent(Chosen),
    Elsewhere(Duration),
}

/// Tries `attempt` until it succeeds, fails for good, or the deadline passes. It is told whether to send contents,
/// and until when it may take.
pub(super) async fn answer_of<T, F, Fut>(replicas: &Arc<Replicas>, call: &Call, attempt: F) -> Result<T, FusionError>
where
    F: Fn(FusionServiceClient<Channel>, bool, Instant) -> Fut,
    Fut: Future<Output = Result<T, Status>>,
{
    let mut tries = Tries::new();
    let result = timeout_at(call.deadline, until_answered(replicas, call, &mut tries, attempt)).await;
    result.unwrap_or_else(|_| {
        let last = tries.last.map_or_else(|| "no replica answered".to_owned(), |error| error.to_string());
        Err(FusionError::DeadlineExceeded(last))
    })
}

async fn until_answered<T, F, Fut>(
    replicas: &Arc<Replicas>,
    call: &Call,
    tries: &mut Tries,
    attempt: F,
) -> Result<T, FusionError>
where
    F: Fn(FusionServiceClient<Channel>, bool, Instant) -> Fut,
    Fut: Future<Output = Result<T, Status>>,
{
    let mut number = 0;
    let mut one = |chosen: Chosen, ask: Ask, asked: &BTreeSet<SocketAddr>| {
        let is_last = call.is_stream || !replicas.has_others(asked);
        let until = if is_last { call.deadline } else { half_of_what_is_left(call.deadline) };
        let is_full = ask == Ask::WithContent;
        number += 1;
        let asked = Asked::new(call.method, chosen.address(), number, ask);
        // What is sent says which span it comes from.
        let answer = asked.span().in_scope(|| attempt(connect(chosen.channel(), call.max_answer), is_full, until));
        let counted = call.figures.begin(call.method);
        async move {
            let answered = timeout_at(until, answer).instrument(asked.span().clone()).await;
            let code = match &answered {
                Ok(answer) => answer.as_ref().err().map_or(Code::Ok, Status::code),
                Err(_) => Code::DeadlineExceeded,
            };
            counted.ends(code);
            let result = match answered {
                Ok(answer) => answer.map_err(|status| verdict(&status)),
                Err(_) => Err(Verdict::silent(chosen.address())),
            };
            asked.ended(result.as_ref().err());
            Outcome { chosen, is_full, result }
        }
    };
    let mut running = FuturesUnordered::new();
    let mut under_way = AllUnderWay::default();
    let mut idle = Some(IdleTime::begin());
    // When a second replica is looked for; `None` while there are two, and once no other may be asked.
    let mut hedge_at = None;
    // Whether there was none at the last look.
    let mut looked_in_vain = false;
    loop {
        if running.is_empty() {
            let chosen = replicas.choose(&call.application, call.lane, &tries.tried).await;
            let chosen = chosen.map_err(FusionError::Unavailable)?;
            drop(idle.take());
            under_way.add(&chosen, Instant::now());
            tries.asked.insert(chosen.address());
            running.push(one(chosen, Ask::Plainly, &under_way.and(&tries.tried)));
            // Whoever was asked before says nothing of how long this one takes.
            (hedge_at, looked_in_vain) = (None, false);
        }
        if !tries.may_go_on() {
            hedge_at = None;
        } else if let (Some(after), None, Some(only)) = (call.hedge_after, hedge_at, under_way.only()) {
            hedge_at = Some(only.since + after);
        }
        tokio::select! {
            Some(Outcome { chosen, is_full, result }) = running.next() => {
                let since = under_way.remove(chosen.address());
                let verdict = match result {
                    Ok(answer) => {
                        chosen.answered();
                        tries.were_refuted(&chosen);
                        under_way.were_overtaken(replicas, call, since);
                        return Ok(answer);
                    }
                    Err(verdict) => verdict,
                };
                let is_answer = matches!(verdict, Verdict::Final(_));
                let ended = Ended { chosen, is_full, is_alone: running.is_empty() };
                match tries.after(replicas, ended, verdict) {
                    Next::GiveUp(error) => {
                        if is_answer {
                            under_way.were_overtaken(replicas, call, since);
                        }
                        return Err(error);
                    }
                    Next::SendContent(chosen) => {
                        under_way.add(&chosen, since);
                        running.push(one(chosen, Ask::WithContent, &under_way.and(&tries.tried)));
                    }
                    Next::Elsewhere(pause) if running.is_empty() => {
                        if Instant::now() + pause + MOMENT >= call.deadline {
                            return Err(tries.out_of_time());
                        }
                        idle = Some(IdleTime::begin());
                        sleep(pause).await;
                    }
                    // Another replica works on it. If all were asked by now, they get time to recover.
                    Next::Elsewhere(_) => {
                        if !replicas.has_others(&under_way.and(&tries.tried)) {
                            hedge_at = call.hedge_after.map(|_| Instant::now() + until_next_look(call));
                        }
                    }
                }
            }
            () = sleep_until(hedge_at.unwrap_or(call.deadline)), if hedge_at.is_some() => {
                let spare = |asked: &BTreeSet<SocketAddr>| replicas.spare(&call.application, call.lane, asked);
                // One that failed and has rested since is better than none, but for those that would fail again.
                let would_fail = tries.would_fail();
                let asked = under_way.and(tries.tried.iter().chain(&would_fail));
                // The second time, so is one that failed before this call and is left alone: if it is not back, that
                // costs a try.
                let ever_asked = under_way.and(&tries.asked);
                let failed = || replicas.spare_though_it_failed(&call.application, call.lane, &ever_asked);
                let rested = spare(&asked).or_else(|| spare(&under_way.and(&would_fail)));
                match rested.or_else(|| looked_in_vain.then(failed).flatten()) {
                    Some(other) => {
                        tracing::debug!(replica = %other.address(), "asking a second replica as well");
                        (hedge_at, looked_in_vain) = (None, false);
                        under_way.add(&other, Instant::now());
                        tries.asked.insert(other.address());
                        running.push(one(other, Ask::AsWell, &under_way.and(&tries.tried)));
                    }
                    None => (hedge_at, looked_in_vain) = (Some(Instant::now() + until_next_look(call)), true),
                }
            }
        }
    }
}

/// How long after a look for a second replica the next one follows.
fn until_next_look(call: &Call) -> Duration {
    call.hedge_after.map_or(FIRST_PAUSE, |after| (after / LOOKS).max(FIRST_PAUSE))
}

impl AllUnderWay {
    /// This one works on the call since then.
    fn add(&mut self, chosen: &Chosen, since: Instant) {
        self.0.push(UnderWay { replica: chosen.replica(), since });
    }

    /// Takes away the one that has ended. Returns since when it was under way.
    fn remove(&mut self, address: SocketAddr) -> Instant {
        let position = self.0.iter().position(|one| one.replica.address() == address);
        position.map_or_else(Instant::now, |position| self.0.remove(position).since)
    }

    /// The one that works on the call alone.
    fn only(&self) -> Option<&UnderWay> {
        if let [only] = self.0.as_slice() { Some(only) } else { None }
    }

    /// Their addresses, and these.
    fn and<'a>(&self, others: impl IntoIterator<Item = &'a SocketAddr>) -> BTreeSet<SocketAddr> {
        self.0.iter().map(|one| one.replica.address()).chain(others.into_iter().copied()).collect()
    }

    /// A replica has answered that was asked at this time. Those that were asked so long before that this one was asked
    /// as well count as silent: their calls end now, so nobody would hear of it. If one is only slow, its next answer
    /// says so.
    fn were_overtaken(&self, replicas: &Replicas, call: &Call, winner_since: Instant) {
        let Some(after) = call.hedge_after else { return };
        for one in self.0.iter().filter(|one| one.since + after <= winner_since) {
            tracing::debug!(replica = %one.replica.address(), "it was silent until another one answered");
            one.replica.failed();
            replicas.doubt();
        }
    }
}

impl Tries {
    fn new() -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times()
            .build();
        Self {
            tried: BTreeSet::new(),
            asked: BTreeSet::new(),
            pauses,
            delay: None,
            lost: Vec::new(),
            suspects: Vec::new(),
            defects: 0,
            refused_by: BTreeSet::new(),
            of_refusal: None,
            other_compilers: BTreeSet::new(),
            of_other_compiler: None,
            untrusted: BTreeSet::new(),
            of_untrusted: None,
            end: None,
            last: None,
        }
    }

    /// Whether other replicas may be asked.
    fn may_go_on(&self) -> bool {
        self.end.is_none()
    }

    /// Who is not asked as well while another one works on the call, also when a round is over and all may be tried
    /// again: who was lost during the call, perhaps by this request, who is suspected, and who has another compiler.
    fn would_fail(&self) -> BTreeSet<SocketAddr> {
        let suspects = self.suspects.iter().map(|replica| replica.address());
        self.lost.iter().chain(&self.other_compilers).copied().chain(suspects).collect()
    }

    /// This replica has answered the request: those that failed inside, or refused it, did so by themselves.
    fn were_refuted(&mut self, by: &Chosen) {
        for replica in self.suspects.drain(..).filter(|replica| replica.address() != by.address()) {
            replica.failed();
        }
    }

    /// What follows a try that failed like this.
    fn after(&mut self, replicas: &Replicas, ended: Ended, verdict: Verdict) -> Next {
        let Ended { chosen, is_full, is_alone } = ended;
        match verdict {
            Verdict::Final(error) => {
                chosen.answered();
                self.were_refuted(&chosen);
                return Next::GiveUp(error);
            }
            Verdict::Unconfirmed(error) => {
                chosen.answered();
                self.suspects.push(chosen.replica());
                self.refused_by.insert(chosen.address());
                if self.refused_by.len() >= MOST_REFUSALS && self.end.is_none() {
                    self.end = Some(error.clone());
                }
                let message = format!("one replica says what no other one has confirmed: {error}");
                self.last = Some(FusionError::Unavailable(message));
                self.of_refusal = Some(error);
            }
            Verdict::SendContent(error) => {
                chosen.answered();
                return if is_full { Next::GiveUp(error) } else { Next::SendContent(chosen) };
            }
            Verdict::Overloaded(error, delay) => {
                let delay = delay.unwrap_or(FIRST_PAUSE);
                chosen.has_enough(delay);
                self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
                self.last = Some(error);
            }
            Verdict::Unreachable(error) => {
                replicas.doubt();
                has_no_connection(&chosen, &error);
                self.last = Some(error);
            }
            Verdict::Untrusted(error) => {
                replicas.doubt();
                has_no_connection(&chosen, &error);
                self.untrusted.insert(chosen.address());
                self.of_untrusted = Some(error.clone());
                self.last = Some(error);
            }
            Verdict::Lost(error) => {
                replicas.doubt();
                chosen.failed();
                self.lost.push(chosen.address());
                let times = self.lost.len();
                if times >= MOST_LOST {
                    let message =
                        format!("replicas were lost {times} times while they worked on it, the last: {error}");
                    self.end = Some(FusionError::ReplicasLost(message));
                }
                self.last = Some(error);
            }
            Verdict::Defect(error) => {
                chosen.answered();
                self.suspects.push(chosen.replica());
                self.defects += 1;
                if self.defects >= MOST_DEFECTS && self.end.is_none() {
                    self.end = Some(error.clone());
                }
                self.last = Some(error);
            }
            Verdict::OtherCompiler(error) => {
                chosen.answered();
                self.other_compilers.insert(chosen.address());
                self.of_other_compiler = Some(error.clone());
                self.last = Some(error);
            }
            Verdict::Elsewhere(error) => {
                chosen.failed();
                self.last = Some(error);
            }
        }
        // Nobody is left who could have the compiler: a version that went does not come back.
        let all_have_another = || !replicas.has_others(&self.other_compilers);
        let end = self.end.as_ref().or_else(|| self.of_other_compiler.as_ref().filter(|_| all_have_another()));
        // Nor is anybody left who could say otherwise.
        let no_use: BTreeSet<SocketAddr> = self.refused_by.union(&self.other_compilers).copied().collect();
        let end = end.or_else(|| self.of_refusal.as_ref().filter(|_| !replicas.has_others(&no_use)));
        // Nor does a certificate come to be trusted while a call goes on, and who has made it wants to hear of it.
        let none_is_trusted = || !replicas.has_others(&self.untrusted);
        let end = end.or_else(|| self.of_untrusted.as_ref().filter(|_| none_is_trusted()));
        if let Some(error) = end.filter(|_| is_alone) {
            return Next::GiveUp(error.clone());
        }
        if let Some(error) = &self.last {
            tracing::debug!(replica = %chosen.address(), %error, "asking another replica");
        }
        self.tried.insert(chosen.address());
        if replicas.has_others(&self.tried) {
            return Next::Elsewhere(Duration::ZERO);
        }
        // A round through all of them is over.
        self.tried = no_use;
        let pause = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        Next::Elsewhere(self.delay.take().map_or(pause, |delay| delay.max(pause).min(LONGEST_PAUSE)))
    }

    fn out_of_time(&mut self) -> FusionError {
        self.last.take().unwrap_or_else(|| FusionError::Unavailable("no replica answered".to_owned()))
    }
}

/// There is no connection to this replica. That is logged at once, and not again until there was one: the call says so
/// only when it ends.
fn has_no_connection(chosen: &Chosen, error: &FusionError) {
    if chosen.was_not_reached() {
        tracing::warn!(replica = %chosen.address(), %error, "no connection to a replica of the fusion service");
    }
}

/// A try leaves time for another one.
fn half_of_what_is_left(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}

fn connect(channel: Channel, max_answer: usize) -> FusionServiceClient<Channel> {
    FusionServiceClient::new(channel)
        .send_compressed(CompressionEncoding::Zstd)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(max_answer)
        .max_encoding_message_size(MAX_REQUEST)
}
