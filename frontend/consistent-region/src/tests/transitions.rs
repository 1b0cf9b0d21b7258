//! The table of transitions in the rules is what the code does (rule consistent-region-4).
//!
//! Every event is tried in every state; the rules show what came of it. `UPDATE_EXPECT=1` writes the tables anew.

use super::{
    DRAIN_TIMEOUT, OPERATOR, PERIOD, RESET_TIMEOUT, blocking_done, done, drain, forced_reset, healthy, launches,
    member, operator_driven, periodic, reset, unhealthy, went_back,
};
use crate::event::{Event, Ignored, Progress};
use crate::health::Health;
use crate::settings::{Settings, Trigger};
use crate::state::State;
use crate::time::Time;
use crate::transition::{Step, step};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules/consistent-region.md");
const BEGIN: &str = "<!-- Written by a test, see consistent-region-4. -->\n";
const END: &str = "<!-- End of what the test wrote. -->\n";

/// A state, by the words of the tables.
struct Example {
    name: &'static str,
    settings: Settings,
    state: State,
}

/// When the events of the tables happen: before anything is due.
const NOW: Time = Time(1_001_000);
/// When others happen: a moment after the examples came about.
const SOON: Time = Time(1_000_500);
/// When the examples came about.
const BEFORE: Time = Time(1_000_000);

fn after(settings: &Settings, state: &State, events: &[Event]) -> State {
    let mut state = state.clone();
    for event in events {
        let now = if *event == Event::Time { state.deadline(settings).unwrap().max(BEFORE) } else { BEFORE };
        let step = step(settings, &state, event, now);
        assert!(step.has_changed, "{event:?}: {:?}", step.ignored);
        state = step.state;
    }
    // Later events of an example do not depend on when the first ones happened.
    at(&state, BEFORE, settings)
}

/// The state, as if it had come about then.
fn at(state: &State, now: Time, settings: &Settings) -> State {
    let nothing = done(9, 0);
    step(settings, state, &nothing, now).state
}

/// Time asks for checkpoints sooner than a PE asks that has heard something.
fn short() -> Settings {
    Settings { trigger: Trigger::Periodic { period: Duration::from_secs(1) }, ..periodic() }
}

/// States of a region of the PEs 0 and 1 that has completed the checkpoints 1 and 2.
fn examples() -> Vec<Example> {
    let (by_time, by_operator) = (periodic(), operator_driven());
    let new = State::new();
    let checkpoint = |sequence| [Event::Time, done(0, sequence), done(1, sequence)];
    let start = [[healthy()].as_slice(), &checkpoint(1), &checkpoint(2)].concat();
    let processing = after(&by_time, &new, &start);
    let start = [healthy(), drain(1), done(0, 1), done(1, 1), drain(2), done(0, 2), done(1, 2)];
    let requested = after(&by_operator, &new, &start);
    let example = |name, from: &State, events: &[Event]| Example {
        name,
        settings: periodic(),
        state: after(&periodic(), from, events),
    };
    let by_request = |name, from: &State, events: &[Event]| Example {
        name,
        settings: operator_driven(),
        state: after(&operator_driven(), from, events),
    };
    let pending = [Event::Time, blocking_done(0, 3), blocking_done(1, 3)];
    let given_up = [reset(), Event::Time, Event::Time, unhealthy()];
    let all_written = [&pending[..], &[done(0, 3), done(1, 3)]].concat();
    vec![
        example("STARTED, periodic", &new, &[]),
        by_request("STARTED, operator driven", &new, &[]),
        example("STARTED, must be reset", &new, &[reset()]),
        example("PROCESSING, periodic", &processing, &[]),
        Example { name: "PROCESSING, period of a second", settings: short(), state: processing.clone() },
        Example {
            name: "PROCESSING, period of a second, after CHECKPOINT_PENDING",
            settings: short(),
            state: after(&periodic(), &processing, &[&all_written[..], &[Event::SeenByAll]].concat()),
        },
        example("PROCESSING, reset before", &processing, &[reset(), went_back(0, 2, 0), went_back(1, 2, 0)]),
        by_request("PROCESSING, operator driven", &requested, &[]),
        example("DRAINING, no reports", &processing, &[Event::Time]),
        example("DRAINING, all others done", &processing, &[Event::Time, done(0, 3)]),
        example("DRAINING, all others blocking done", &processing, &[Event::Time, blocking_done(0, 3)]),
        by_request("DRAINING, operator driven", &requested, &[drain(3)]),
        example("CHECKPOINT_PENDING, nobody done", &processing, &pending),
        example("CHECKPOINT_PENDING, all others done", &processing, &[&pending[..], &[done(0, 3)]].concat()),
        example("CHECKPOINT_PENDING, all done", &processing, &all_written),
        example("UNHEALTHY", &processing, &[unhealthy()]),
        example("UNHEALTHY, reset before", &processing, &[reset(), unhealthy()]),
        example("RESETTING, nobody done", &processing, &[reset()]),
        example("RESETTING, all others done", &processing, &[reset(), went_back(0, 2, 0)]),
        example("RESETTING, last attempt", &processing, &[reset(), Event::Time]),
        example("MAXIMUM_RESET_ATTEMPTS_REACHED, healthy", &processing, &[reset(), Event::Time, Event::Time]),
        example("MAXIMUM_RESET_ATTEMPTS_REACHED, unhealthy", &processing, &given_up),
    ]
}

/// Events in a state, by the words of the tables. Reports come from PE 1, and are those that the region waits for where
/// nothing else is said.
fn events(example: &Example) -> Vec<(&'static str, Event, Time)> {
    let state = &example.state;
    let is_pending = state.name() == "CHECKPOINT_PENDING";
    let sequence = if is_pending { state.sequence() - 1 } else { state.sequence() };
    let (completed, attempt) = (state.last_completed(), state.attempt());
    let health = |launch| Event::Health(Health::Healthy(launches([(0, 1), (1, launch)])));
    let report = |pe, launch| Event::Report(member(pe, launch), Progress::CheckpointDone { sequence });
    let reset_report =
        |pe, launch| Event::Report(member(pe, launch), Progress::ResetDone { sequence: completed, attempt });
    let due = state.deadline(&example.settings).map_or(NOW, |due| due.max(NOW));
    let drain_by = |operator: &str, by| Event::Drain { by, operator: operator.to_owned(), sequence };
    let by_earlier_launch = Event::Reset { by: Some(member(1, 7)), is_forced: false };
    vec![
        ("healthy", health(1), NOW),
        ("healthy, a PE in another launch", health(2), NOW),
        ("unhealthy", unhealthy(), NOW),
        ("CheckpointDone", report(1, 1), NOW),
        ("CheckpointDone again", report(0, 1), NOW),
        ("CheckpointDone, a smaller sequence id", done(1, sequence - 1), NOW),
        ("CheckpointDone, a sequence id that was never in use", done(1, sequence + 5), NOW),
        ("CheckpointDone, another launch", report(1, 2), NOW),
        ("CheckpointDone, another PE", report(2, 1), NOW),
        ("BlockingCheckpointDone", blocking_done(1, sequence), NOW),
        ("BlockingCheckpointDone again", blocking_done(0, sequence), NOW),
        ("ResetDone", reset_report(1, 1), NOW),
        ("ResetDone again", reset_report(0, 1), NOW),
        ("ResetDone, another sequence id", went_back(1, completed + 5, attempt), NOW),
        ("ResetDone, another attempt", went_back(1, completed, attempt + 5), NOW),
        ("ResetDone, another launch", reset_report(1, 2), NOW),
        ("ResetDone, another PE", reset_report(2, 1), NOW),
        ("drain by a trigger operator", drain_by(OPERATOR, member(0, 1)), NOW),
        ("drain by another operator", drain_by("Sink", member(0, 1)), NOW),
        ("drain, a smaller sequence id", drain(sequence - 1), NOW),
        ("drain, a sequence id that was never in use", drain(sequence + 5), NOW),
        ("drain, another launch", drain_by(OPERATOR, member(0, 2)), NOW),
        ("healthy, a moment after a reset began", health(1), SOON),
        ("reset", reset(), NOW),
        ("reset, a moment after another began", reset(), SOON),
        ("reset by a PE in another launch", by_earlier_launch, NOW),
        ("forced reset", forced_reset(), NOW),
        ("forced reset, a moment after another began", forced_reset(), SOON),
        ("seen by all", Event::SeenByAll, NOW),
        ("told", Event::Told, NOW),
        ("time, not yet due", Event::Time, NOW),
        ("time, due", Event::Time, due),
        ("taken over", Event::TakenOver, NOW),
    ]
}

/// Whether the event says the same as another one in this state, because nothing has been said by PE 0.
fn is_another_first(example: &Example, event: &str) -> bool {
    let says = |words: &str| event == format!("{words} again");
    let is_reset = example.name.starts_with("RESETTING");
    let is_first = !example.name.contains("all ");
    (is_first && (says("CheckpointDone") || says("BlockingCheckpointDone") || says("ResetDone")))
        || (says("CheckpointDone") && (example.name.contains("blocking") || is_reset))
        || (says("ResetDone") && !is_reset)
        || (example.name == "CHECKPOINT_PENDING, nobody done" && says("BlockingCheckpointDone"))
}

fn timer(deadline: Option<Time>, now: Time) -> &'static str {
    let Some(deadline) = deadline else { return "none" };
    let table = [(PERIOD, "period"), (DRAIN_TIMEOUT, "drain timeout"), (RESET_TIMEOUT, "reset timeout")];
    let rest = [(Duration::from_millis(500), "the rest of a second")];
    let found = table.into_iter().chain(rest).find(|(duration, _)| now.after(*duration) == deadline);
    found.map_or("as before", |(_, name)| name)
}

fn told(step: &Step) -> String {
    let Some(message) = step.send else { return String::new() };
    format!("`{}` `{message}`", message.kind())
}

/// The tables, as they stand in the rules.
fn tables() -> String {
    let mut changes = String::from("| in | when | then | PEs are told | timer |\n|---|---|---|---|---|\n");
    let mut ignored: BTreeMap<(String, usize, &str), Vec<&str>> = BTreeMap::new();
    let examples = examples();
    for example in &examples {
        // Events with the same result share a row.
        let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
        for (index, (name, event, now)) in events(example).into_iter().enumerate() {
            let is_no_moment_later = name.contains("a moment after") && example.state.reset_begun.is_none();
            if is_another_first(example, name) || is_no_moment_later || (name == "time, due" && now == NOW) {
                continue;
            }
            let step = step(&example.settings, &example.state, &event, now);
            if !step.has_changed {
                let reason = step.ignored.as_ref().unwrap().to_string();
                assert_eq!(step.state, example.state);
                if step.ignored != Some(Ignored::NotExpected) {
                    ignored.entry((without_numbers(&reason), index, name)).or_default().push(example.name);
                }
                continue;
            }
            assert_eq!(step.ignored, None);
            let is_noted = step.state.name() == example.state.name() && step.send.is_none();
            let then = if is_noted { "noted" } else { step.state.name() };
            let row = format!("{then} | {} | {}", told(&step), timer(step.deadline, now)).replace("|  |", "| |");
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, events)) => events.push(name),
                None => rows.push((row, vec![name])),
            }
        }
        for (row, events) in rows {
            writeln!(changes, "| {} | {} | {row} |", example.name, events.join("; ")).unwrap();
        }
    }
    let mut merged: Vec<(String, Vec<&str>, Vec<&str>)> = Vec::new();
    for ((reason, _, event), states) in ignored {
        match merged.iter_mut().find(|(known, _, at)| *known == reason && *at == states) {
            Some((_, events, _)) => events.push(event),
            None => merged.push((reason, vec![event], states)),
        }
    }
    let mut nothing = String::from("| reason | when | in |\n|---|---|---|\n");
    for (reason, events, states) in merged {
        writeln!(nothing, "| {reason} | {} | {} |", events.join("; "), places(&states, &examples)).unwrap();
    }
    format!("\n{changes}\nNothing changes, and nothing is sent or stored, for these reasons:\n\n{nothing}\n")
}

/// Names of states: one word for all of its kind.
fn places(states: &[&str], examples: &[Example]) -> String {
    let all: Vec<&str> = examples.iter().map(|example| example.name).collect();
    let by_time: Vec<&str> = all.iter().copied().filter(|name| !name.contains("operator driven")).collect();
    if states.len() == all.len() {
        return "any state".to_owned();
    }
    if states == by_time {
        return "any state of a periodic region".to_owned();
    }
    let mut names: Vec<&str> = Vec::new();
    for example in examples.iter().filter(|example| states.contains(&example.name)) {
        let whole = kind_of(example.name);
        let is_whole = all.iter().filter(|name| kind_of(name) == whole).all(|name| states.contains(name));
        let name = if is_whole { whole } else { example.name };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("; ")
}

fn kind_of(name: &str) -> &str {
    name.split(',').next().unwrap()
}

fn without_numbers(reason: &str) -> String {
    let words = reason.split(' ').filter(|word| word.parse::<u64>().is_err());
    words.collect::<Vec<_>>().join(" ").trim_end_matches(" than").to_owned()
}

#[test]
fn the_rules_say_what_the_code_does() {
    let text = std::fs::read_to_string(Path::new(CHAPTER)).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, behind) = rest.split_once(END).unwrap();
    let tables = tables();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(CHAPTER, format!("{before}{BEGIN}{tables}{END}{behind}")).unwrap();
        return;
    }
    assert!(written == tables, "docs/rules/consistent-region.md should have:\n{tables}");
}
