//! Any sequence of events: nothing panics, sequence ids only grow, what is stored can be read again, and a state says
//! all that has to be done.

use super::{OPERATOR, operator_driven, periodic};
use crate::event::{Event, Member, Progress};
use crate::health::{Cause, Health};
use crate::settings::Settings;
use crate::state::{Phase, State};
use crate::time::Time;
use crate::transition::step;
use proptest::prelude::*;
use std::time::Duration;

fn members() -> impl Strategy<Value = Member> {
    (0_u64..4, 1_u32..3).prop_map(|(pe, launch)| Member { pe, launch })
}

/// Sequence ids near those that matter, and any others.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..6, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn events() -> impl Strategy<Value = Event> {
    let launches = (1_u64..4, 1_u32..3, 1_u32..3).prop_map(|(pes, first, others)| {
        Event::Health(Health::Healthy((0..pes).map(|pe| (pe, if pe == 0 { first } else { others })).collect()))
    });
    let report = (members(), numbers(), 0_u32..3, 0..3).prop_map(|(member, sequence, attempt, kind)| {
        let progress = match kind {
            0 => Progress::CheckpointDone { sequence },
            1 => Progress::BlockingCheckpointDone { sequence },
            _ => Progress::ResetDone { sequence, attempt },
        };
        Event::Report(member, progress)
    });
    let drain = (members(), numbers(), any::<bool>()).prop_map(|(by, sequence, is_trigger)| Event::Drain {
        by,
        operator: if is_trigger { OPERATOR } else { "Sink" }.to_owned(),
        sequence,
    });
    let reset =
        (proptest::option::of(members()), any::<bool>()).prop_map(|(by, is_forced)| Event::Reset { by, is_forced });
    prop_oneof![
        3 => launches,
        1 => Just(Event::Health(Health::Unhealthy(Cause::NoPe(0)))),
        1 => Just(Event::Health(Health::Unhealthy(Cause::TakenAway(0)))),
        12 => report,
        2 => drain,
        1 => reset,
        4 => Just(Event::Time),
        2 => Just(Event::SeenByAll),
        2 => Just(Event::Told),
        1 => Just(Event::TakenOver),
    ]
}

/// What an honest PE would say next, so that sequences get somewhere.
fn answer(state: &State, kind: u8) -> Event {
    let Some(launches) = state.launches() else { return Event::Time };
    let pes: Vec<u64> = launches.pes().collect();
    let pe = pes[usize::from(kind) % pes.len()];
    let member = Member { pe, launch: launches.of(pe).unwrap() };
    let progress = match &state.phase {
        Phase::Resetting { .. } => Progress::ResetDone { sequence: state.last_completed, attempt: state.attempt() },
        Phase::CheckpointPending { .. } => Progress::CheckpointDone { sequence: state.sequence - 1 },
        _ if kind >= 128 => Progress::BlockingCheckpointDone { sequence: state.sequence },
        _ => Progress::CheckpointDone { sequence: state.sequence },
    };
    Event::Report(member, progress)
}

/// Settings with which an event happens: they may change at any time.
fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), 0_u64..300, 0_u32..3).prop_map(|(is_periodic, seconds, attempts)| Settings {
        drain_timeout: Duration::from_secs(seconds),
        max_consecutive_reset_attempts: attempts,
        ..if is_periodic { periodic() } else { operator_driven() }
    })
}

proptest! {
    #[test]
    fn any_sequence_of_events_leads_from_a_state_to_a_state(
        events in proptest::collection::vec(
            (proptest::option::of(events()), any::<u8>(), settings(), 0_u64..400_000), 0..80)
    ) {
        let mut state = State::new();
        for (event, kind, settings, now) in events {
            let event = event.unwrap_or_else(|| answer(&state, kind));
            let step = step(&settings, &state, &event, Time(now));
            let next = &step.state;
            prop_assert_eq!(step.has_changed, *next != state);
            prop_assert!(next.sequence >= state.sequence);
            prop_assert!(next.last_completed >= state.last_completed);
            prop_assert!(next.last_completed < next.sequence);
            prop_assert!(next.superseded.iter().all(|superseded| *superseded < next.last_completed));
            prop_assert!(next.superseded.len() <= 1, "{:?}", next.superseded);
            prop_assert!(next.retired < next.last_completed || next.retired == 0);
            prop_assert!(next.attempts_before <= next.attempts);
            // Only who takes over begins a reset a moment after another one.
            let begins = next.attempts > state.attempts;
            prop_assert!(!begins || event == Event::TakenOver || now >= state.next_reset().0.min(now + 1_000));
            prop_assert_eq!(step.deadline, next.deadline(&settings));
            prop_assert!(step.send.is_none() || step.send == next.message());
            if let Phase::Draining { reports, .. } | Phase::CheckpointPending { reports, .. } = &next.phase {
                prop_assert!(reports.done.is_disjoint(&reports.blocking));
            }
            // Whoever holds reports back until as many have come holds up nothing.
            let is_reset_by_it = next.attempts > state.attempts || next.name() == "MAXIMUM_RESET_ATTEMPTS_REACHED";
            if matches!(event, Event::Report(..)) && !is_reset_by_it {
                let leads_on = next.name() != state.name();
                prop_assert!(!leads_on || state.missing_reports() <= 1, "{:?}", state);
                prop_assert!(leads_on || next.missing_reports() + 1 >= state.missing_reports(), "{:?}", state);
            }
            // Who has seen the message of a state is told when there is another one.
            prop_assert!(step.send.is_some() || next.message().is_none() || next.message() == state.message());
            let text = serde_json::to_string(next).unwrap();
            prop_assert_eq!(&serde_json::from_str::<State>(&text).unwrap(), next);
            prop_assert_eq!(&serde_json::from_value::<State>(serde_json::to_value(next).unwrap()).unwrap(), next);
            // The same again, as after a crash before it was stored.
            prop_assert_eq!(&super::super::step(&settings, &state, &event, Time(now)), &step);
            state = step.state;
        }
    }
}
