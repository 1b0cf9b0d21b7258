//! How many PEs the resizes of the conformance corpus restart, beside the reference implementation and beside what no
//! policy could avoid.
//!
//! `docs/measurements/blast-radius.md` has the result. It follows from the corpus and the compiler alone, so it is
//! recorded: `UPDATE_EXPECT=1 cargo test --workspace --test conformance blast_radius` writes it anew.
//!
//! `necessity` finds the PEs that must be interrupted.

mod necessity;

use clap::Parser;
use fusion_service::command::application::{Application, ApplicationArguments};
use necessity::{OwnChanges, Partition, partition};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_compiler::plan::{self, Compiled, Fate, FusionOption, JobState, Policy, Reason, Request};
use streams_compiler::topology::{ChannelCount, Identity, IgnoredCounts, find_region};
use streams_test_support::corpus;
use streams_test_support::documents::step::Step;
use streams_test_support::documents::tree::Node;
use streams_test_support::table::say;

/// What is measured for each fusion mode.
const WAYS: [(Policy, ChannelCount, &str); 4] = [
    (Policy::Sticky, ChannelCount::Observed, "sticky"),
    (Policy::Rebalance, ChannelCount::Observed, "rebalance"),
    (Policy::Sticky, ChannelCount::Ignored, "sticky, channelCount Ignored"),
    (Policy::Rebalance, ChannelCount::Ignored, "rebalance, channelCount Ignored"),
];

/// Most percent of the reference's restarts that the sticky policy may make for manual fusion. No policy can do it; the
/// goal that can be met is about restarts without need.
const STICKY: usize = 40;

#[derive(Parser)]
struct Tool {
    #[command(flatten)]
    application: ApplicationArguments,
}

/// The resizes of one fusion mode in one way.
#[derive(Clone, Debug, Default)]
struct Radius {
    steps: usize,
    /// PEs there were before.
    pes: usize,
    /// PEs whose document changes so that they restart: by us, and by the reference.
    restarted: [usize; 2],
    /// These, and PEs that are gone although some of their operators go on elsewhere: by us, and by the reference.
    interrupted: [usize; 2],
    /// PEs that had to be interrupted, as PEs were before each resize: by us, and by the reference.
    must: [usize; 2],
    /// PEs that every policy must interrupt that leaves operators where the submission put them.
    least: usize,
    /// The part of the first resizes in `must`, by us.
    must_at_first: usize,
    /// Resizes that interrupt more PEs than the reference does.
    worse: Vec<String>,
    /// Resizes of outermost regions, and PEs with operators of the region only, the same before and after, that they
    /// restart, with the reasons.
    outermost: usize,
    channels: Vec<String>,
}

/// By fusion mode and way.
type Radii = BTreeMap<(&'static str, usize), Radius>;

#[test]
fn the_corpus() {
    let Some(archive) = corpus::cases() else {
        say(&format!("\nno corpus at {}: NO restarts are counted\n", corpus::folder().display()));
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let cases = archive.unpack(folder.path());
    let (radii, next) = (Mutex::new(Radii::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    measure(case, &radii);
                }
            });
        }
    });
    let mut radii = radii.into_inner();
    radii.values_mut().for_each(|radius| {
        radius.worse.sort();
        radius.channels.sort();
    });
    let report = report(&radii);
    say(&report);
    expect_test::expect_file![report_path()].assert_eq(&report);

    let of = |mode, way| radii.get(&(mode, way)).unwrap();
    for mode in ["legacy", "manual"] {
        for (way, (policy, count, name)) in WAYS.iter().enumerate() {
            let radius = of(mode, way);
            assert!(radius.steps > 20, "{mode}, {name}: {} resizes", radius.steps);
            let [ours, reference] = radius.interrupted;
            assert!(ours <= reference, "{mode}, {name}: {ours} interrupted, {reference} by the reference");
            if *count == ChannelCount::Ignored {
                let observed = of(mode, usize::from(*policy == Policy::Rebalance));
                assert!(ours <= observed.interrupted[0], "{mode}, {name}: ignoring interrupts more");
                if *policy == Policy::Sticky {
                    assert!(radius.channels.is_empty(), "{mode}, {name}: {:?}", radius.channels);
                }
            }
        }
    }
}

fn report_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measurements/blast-radius.md")
}

fn measure(case: &Path, radii: &Mutex<Radii>) {
    let (adl, request) = (case.join("app.adl"), case.join("request.json"));
    let arguments = ["tool".as_ref(), adl.as_os_str(), "--request".as_ref(), request.as_os_str()];
    let application = Tool::parse_from(arguments).application.read().unwrap();
    let Ok((source, request)) = application.open() else { return };
    let mode = match request.fusion {
        FusionOption::Legacy => "legacy",
        FusionOption::Manual(_) | FusionOption::Automatic { .. } => "manual",
    };
    let reference = steps_of_the_reference(case, application.resizes.len());
    for (way, (policy, count, _)) in WAYS.into_iter().enumerate() {
        let request = match count {
            ChannelCount::Observed => Arc::clone(&request),
            ChannelCount::Ignored => {
                Arc::new(Request { channel_counts: vec![("*".to_owned(), count)], ..(*request).clone() })
            }
        };
        let Ok(start) = plan::submit(&source, &request, &application.budget) else { continue };
        let name = case.file_name().unwrap().to_string_lossy();
        let radius = chain(&name, &application, start, policy, &reference);
        radii.lock().entry((mode, way)).or_default().add(radius);
    }
}

/// PEs that a resize restarts, and those that it interrupts.
#[derive(Clone, Copy)]
struct Interrupted {
    restarted: usize,
    all: usize,
}

impl Interrupted {
    fn by_us(now: &Compiled) -> Self {
        let restarted = now.plan().elements.iter().filter(|element| element.fate == Fate::Restarted).count();
        let removed = now.plan().change.iter().flat_map(|change| &change.removed);
        let elsewhere = removed.filter(|removed| matches!(removed.reason, Some(Reason::InOtherElements(_))));
        Self { restarted, all: restarted + elsewhere.count() }
    }
}

/// A step of the reference.
struct ReferenceStep {
    interrupted: Interrupted,
    /// The PEs before.
    before: Partition,
}

impl ReferenceStep {
    fn read(case: &Path, step: usize) -> Option<Self> {
        let folder = |step: usize| case.join(format!("expected/step-{step}"));
        let context = std::fs::read_to_string(folder(step).join("context.json")).ok()?;
        let context: Value = serde_json::from_str(&context).ok()?;
        let difference = context.get("peDiff")?;
        let restarted = list(difference, "changed").len();
        let (before, now) = (recorded(&folder(step - 1))?, recorded(&folder(step))?);
        let running: BTreeSet<&Identity> = now.values().flatten().collect();
        let goes_on = |id: &u64| before.get(id).is_some_and(|own| own.iter().any(|one| running.contains(one)));
        let elsewhere = list(difference, "deleted").iter().filter_map(Value::as_u64).filter(goes_on).count();
        Some(Self { interrupted: Interrupted { restarted, all: restarted + elsewhere }, before })
    }
}

/// The PEs that a folder of documents has.
fn recorded(folder: &Path) -> Option<Partition> {
    let step = Step::read(folder).ok()?;
    let identity = |operator: &Node| {
        let number = |node: &Node, name: &str| node.get(name).and_then(|value| value.parse().ok());
        let regions = operator.list("phy:parallelRegions");
        let channels = regions.iter().filter_map(|region| region.get("localChannelIndex")?.parse().ok());
        Some(Identity { logical_index: number(operator, "logicalIndex")?, channels: channels.collect() })
    };
    let of = |root: &Node| root.all("app:operInstance").into_iter().filter_map(identity).collect();
    Some(step.documents.iter().map(|(id, root)| (*id, of(root))).collect())
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What the reference does in each step, as long as no step before failed: afterwards its chain and ours start from
/// other widths.
fn steps_of_the_reference(case: &Path, steps: usize) -> Vec<ReferenceStep> {
    (1..=steps).map_while(|step| ReferenceStep::read(case, step)).collect()
}

fn chain(
    name: &str,
    application: &Application,
    start: Compiled,
    policy: Policy,
    reference: &[ReferenceStep],
) -> Radius {
    let mut radius = Radius::default();
    // The operators that have always been there, in the PEs of the submission.
    let mut submitted = partition(&start);
    let mut current = start;
    for (step, (width, reference)) in (1..).zip(application.resizes.iter().zip(reference)) {
        let widths = std::slice::from_ref(width);
        let resized = plan::resize(&current, widths, policy, &JobState::default(), &application.budget);
        let Ok(resized) = resized else { break };
        let (ours, theirs) = (Interrupted::by_us(&resized), reference.interrupted);
        let between = |ignored: &IgnoredCounts| OwnChanges::between(current.topology(), resized.topology(), ignored);
        let changes = between(&IgnoredCounts::new(&resized.topology().regions));
        let must = changes.must_interrupt(&partition(&current));
        // The reference knows no counts that are ignored.
        let must_of_reference = between(&IgnoredCounts::default()).must_interrupt(&reference.before);
        assert!(ours.all >= must, "{name} step {step}: {} instead of at least {must}", ours.all);
        assert!(theirs.all >= must_of_reference, "{name} step {step}: {} by the reference", theirs.all);
        radius.steps += 1;
        radius.pes += current.plan().elements.len();
        for (sum, of, must) in [(0, ours, must), (1, theirs, must_of_reference)] {
            radius.restarted[sum] += of.restarted;
            radius.interrupted[sum] += of.all;
            radius.must[sum] += must;
        }
        radius.least += changes.must_interrupt(&submitted);
        changes.remove_from(&mut submitted);
        if step == 1 {
            radius.must_at_first += must;
        }
        if ours.all > theirs.all {
            radius.worse.push(format!("{name} step {step}: {} instead of {}, {must} must be", ours.all, theirs.all));
        }
        let region = find_region(&current.topology().regions, &width.0).unwrap().index;
        if let Some(channels) = restarted_channels(&current, &resized, region) {
            radius.outermost += 1;
            radius.channels.extend(channels.into_iter().map(|why| format!("{name} step {step}: {why}")));
        }
        current = resized;
    }
    radius
}

/// Why PEs restart that have operators of the region only, the same as before; nothing if the region is in another one.
fn restarted_channels(before: &Compiled, now: &Compiled, region: u64) -> Option<Vec<String>> {
    let operators = now.topology().operators.values();
    let mut around = operators
        .filter_map(|operator| operator.channels.iter().position(|c| c.region == region).map(|at| (at, operator)));
    if around.any(|(at, operator)| at + 1 < operator.channels.len()) {
        return None;
    }
    let mut found = Vec::new();
    for element in now.plan().elements.iter().filter(|element| element.fate == Fate::Restarted) {
        let Some(pe) = now.elements().find(element.id) else { continue };
        let members = now.elements().members(pe).iter().map(|&node| &now.topology().operators[node]);
        let inside = members.clone().all(|operator| operator.channels.iter().any(|channel| channel.region == region));
        let same = before
            .plan()
            .element(element.id)
            .is_some_and(|earlier| earlier.operator_indexes == element.operator_indexes);
        if inside && same {
            found.push(format!("PE {} restarts: {}", element.id, Reason::describe(element.reason.as_deref())));
        }
    }
    Some(found)
}

impl Radius {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.pes += other.pes;
        for sum in 0..2 {
            self.restarted[sum] += other.restarted[sum];
            self.interrupted[sum] += other.interrupted[sum];
            self.must[sum] += other.must[sum];
        }
        self.least += other.least;
        self.must_at_first += other.must_at_first;
        self.worse.extend(other.worse);
        self.outermost += other.outermost;
        self.channels.extend(other.channels);
    }

    /// What we interrupt, of what the reference interrupts.
    fn percent(&self) -> usize {
        percent(self.interrupted[0], self.interrupted[1])
    }

    /// PEs that are interrupted without need: by us, and by the reference.
    fn without_need(&self) -> [usize; 2] {
        [0, 1].map(|sum| self.interrupted[sum] - self.must[sum])
    }
}

fn percent(part: usize, whole: usize) -> usize {
    (part * 100).div_ceil(whole.max(1))
}

const HEAD: &str = "# Blast radius: what a resize restarts

How many PEs the resizes of the conformance corpus restart, beside the reference implementation, which restarts a PE when
any byte of its document changes. The figures follow from the corpus and the compiler alone; a test compares them, and
`UPDATE_EXPECT=1 cargo test --workspace --test conformance blast_radius` writes them anew. Without the corpus the test
says so and compares nothing.

*Resizes* are the steps of the corpus that the reference carries out and that follow no step that it refuses. *PEs* are
those that were there before, summed over the resizes. *Restarted* are PEs that keep their id and whose pod is replaced;
the reference has few of them with manual fusion, because it fuses from scratch and gives new ids, so that a PE goes and
its operators go on in others. *Interrupted* counts those too: PEs that are restarted, or gone although one of their
operators goes on. *Percent* and *worse* (resizes that interrupt more PEs than the reference) are about interrupted
PEs. *Ignored* means that the job says `channelCount: Ignored` of all its regions (rule
[aadl-22](../rules/aadl.md#aadl-22-numbers-of-channels-that-nobody-asks-for)). *Channels* are restarted PEs that have
operators of the resized region only, the same ones as before, where no other region is around it; beside them, in
parentheses, the resizes of such regions.

*Must* counts the PEs that no policy could spare, from the PEs there were before the resize: those with an operator that
goes on, beside one that does not, or one that goes on with something else that it can observe itself: a connection, its
name, channel, number of channels, a constant, an import or an export. It follows from the operators alone, so it is a
lower bound: where PEs, ports and threads change, more may have to be interrupted. What is interrupted beyond it is
*without need*. After a first resize the PEs before are not those of the reference, which may have to interrupt fewer.
The reference observes numbers of channels in the rows of *Ignored*, too.

";

fn report(radii: &Radii) -> String {
    let mut text = HEAD.to_owned();
    let head = [
        "fusion",
        "policy",
        "resizes",
        "PEs",
        "restarted",
        "by the reference",
        "interrupted",
        "by the reference",
        "must",
        "by the reference",
        "percent",
        "worse",
        "channels",
    ];
    writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len())).unwrap();
    for ((mode, way), radius) in radii {
        let Radius { steps, pes, restarted, interrupted, must, worse, outermost, channels, .. } = radius;
        writeln!(
            text,
            "| {mode} | {} | {steps} | {pes} | {} | {} | {} | {} | {} | {} | {} % | {} | {} ({outermost}) |",
            WAYS[*way].2,
            restarted[0],
            restarted[1],
            interrupted[0],
            interrupted[1],
            must[0],
            must[1],
            radius.percent(),
            worse.len(),
            channels.len()
        )
        .unwrap();
    }
    text.push_str("\n## Goals\n\n| goal | result |\n|---|---|\n");
    let all = |list: fn(&Radius) -> usize, ways: &[usize]| -> usize {
        radii.iter().filter(|((_, way), _)| ways.contains(way)).map(|(_, radius)| list(radius)).sum()
    };
    let worse = all(|radius| radius.worse.len(), &[0, 1, 2, 3]);
    let of_sticky = radii.get(&("manual", 0)).map_or(0, Radius::percent);
    let channels = [2, 3].map(|way| all(|radius| radius.channels.len(), &[way]));
    let said = |met: bool| if met { "met" } else { "missed" };
    writeln!(text, "| no resize interrupts more than the reference | {}: {worse} do |", said(worse == 0)).unwrap();
    writeln!(
        text,
        "| sticky, manual fusion: at most {STICKY} % of the reference | {}: {of_sticky} %; it cannot be reached, see below |",
        said(of_sticky <= STICKY)
    )
    .unwrap();
    let [ours, reference] = radii.get(&("manual", 0)).map_or([0; 2], |radius| radius.restarted);
    let kept = format!("{}: {ours} instead of {reference}", said(ours * 100 <= STICKY * reference));
    writeln!(text, "| the same of PEs that keep their ids alone, as `peDiff` of the reference has it | {kept} |")
        .unwrap();
    for (way, goal) in [(0, "sticky, manual fusion"), (2, "sticky, manual fusion, `Ignored`")] {
        let [ours, reference] = radii.get(&("manual", way)).map_or([0; 2], Radius::without_need);
        let percent = percent(ours, reference);
        writeln!(
            text,
            "| {goal}: without need at most {STICKY} % of the reference's | {}: {ours} instead of {reference}, {percent} % |",
            said(percent <= STICKY)
        )
        .unwrap();
    }
    for (policy, channels) in ["sticky", "rebalance"].into_iter().zip(channels) {
        let goal = format!("with `Ignored` no channel of an outermost region restarts: {policy}");
        writeln!(text, "| {goal} | {}: {channels} do |", said(channels == 0)).unwrap();
    }
    text.push_str(
        "\nThe policy *rebalance* gives new PE ids to PEs whose operators change, and a channel that is connected to such a\n\
         PE has its id in its document: that is what restarts the channels in the last row.\n",
    );
    unreachable_goal(&mut text, radii);
    section(&mut text, "Resizes that interrupt more than the reference", radii, |radius| &radius.worse);
    section(&mut text, "Channels that restart with `Ignored`", radii, |radius| &radius.channels);
    text
}

/// Why no policy can meet the goal of [`STICKY`] percent.
fn unreachable_goal(text: &mut String, radii: &Radii) {
    let [observed, ignored] = [0, 2].map(|way| radii.get(&("manual", way)).cloned().unwrap_or_default());
    let reference = observed.interrupted[1];
    let share = |part: usize| format!("{part} ({} %)", percent(part, reference));
    writeln!(
        text,
        "\n## Why {STICKY} % cannot be reached\n\n\
         {STICKY} % of the {reference} PEs that the reference interrupts with manual fusion are {}. The PEs of a submission are\n\
         the reference's, which is the contract, and from there the first resizes alone must interrupt {}, whatever the\n\
         policy. A policy that leaves operators in the PEs that they have must interrupt at least {} in all;\n\
         *sticky* interrupts {}. Where operators do not ask for the number of channels, such a policy must\n\
         interrupt at least {}, and *sticky* interrupts {}.",
        reference * STICKY / 100,
        observed.must_at_first,
        share(observed.least),
        share(observed.interrupted[0]),
        share(ignored.least),
        share(ignored.interrupted[0]),
    )
    .unwrap();
}

/// Lists what the table counts. Where nothing is ignored, channels restart as a matter of course.
fn section(text: &mut String, title: &str, radii: &Radii, list: fn(&Radius) -> &Vec<String>) {
    const LISTED: usize = 20;
    let mut lines = String::new();
    for ((mode, way), radius) in radii {
        let (_, count, name) = WAYS[*way];
        if title.starts_with("Channels") && count == ChannelCount::Observed {
            continue;
        }
        let list = list(radius);
        list.iter().take(LISTED).for_each(|line| writeln!(lines, "* {mode}, {name}: {line}").unwrap());
        if list.len() > LISTED {
            writeln!(lines, "* {mode}, {name}: and {} more", list.len() - LISTED).unwrap();
        }
    }
    if !lines.is_empty() {
        write!(text, "\n## {title}\n\n{lines}").unwrap();
    }
}
