//! The next pod waits for a newer text, but not for long (rule pe-23).

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle, work};

/// How many seconds it takes until the PE has come to this launch.
fn seconds_until_launch(simulation: &mut PeSimulation, launch_count: u64) -> u64 {
    for seconds in 0..=20 {
        work(simulation);
        if launches(simulation).0 == launch_count {
            return seconds;
        }
        simulation.wait(1);
    }
    panic!("there is no launch {launch_count}: {:?}", launches(simulation));
}

#[test]
fn the_next_pod_waits_five_seconds_for_a_newer_text() {
    // what makes another pod necessary
    let table = [
        &[ClusterEvent::Policies(31), ClusterEvent::End { code: 1 }][..],
        &[ClusterEvent::Policies(31), ClusterEvent::Vanish],
        &[ClusterEvent::Request(1)],
    ];
    for events in table {
        // the text is there after so many seconds -> when the next pod is there
        for (written, expected) in [(Some(0), 0), (Some(3), 3), (Some(9), 5), (None, 5)] {
            let mut simulation = PeSimulation::new();
            settle(&mut simulation);
            simulation.happen(ClusterEvent::Older(Some(1)));
            events.iter().for_each(|event| simulation.happen(*event));
            let mut seconds = 0;
            loop {
                if written == Some(seconds) {
                    simulation.happen(ClusterEvent::Renew(true));
                }
                work(&mut simulation);
                if launches(&simulation).0 == 2 || seconds > 20 {
                    break;
                }
                simulation.wait(1);
                seconds += 1;
            }
            assert_eq!(seconds, expected, "{events:?} {written:?}");
            settle(&mut simulation);
            assert_eq!(launches(&simulation).0, 2);
            // The pod after it waits as well.
            simulation.happen(ClusterEvent::Renew(false));
            simulation.happen(ClusterEvent::Request(2));
            assert_eq!(seconds_until_launch(&mut simulation, 3), 5, "{events:?} {written:?}");
        }
    }
}

#[test]
fn what_a_pe_says_of_its_text_counts_for_that_text_and_for_the_generation_that_changed_it() {
    let newest = [ClusterEvent::Older(Some(1)), ClusterEvent::Renew(true)];
    // what happens before a user asks for a restart -> how long the next pod waits
    let table = [
        (&[][..], 0),
        (&newest, 0),
        (&[ClusterEvent::Older(Some(1)), ClusterEvent::Pretend], 5),
        (&[newest[0], newest[1], ClusterEvent::Older(Some(2))], 5),
        (&[newest[0], newest[1], ClusterEvent::Older(Some(2)), ClusterEvent::Renew(true)], 0),
        (&[newest[0], newest[1], ClusterEvent::Older(None)], 0),
    ];
    for (events, expected) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        events.iter().for_each(|event| simulation.happen(*event));
        simulation.happen(ClusterEvent::Request(1));
        assert_eq!(seconds_until_launch(&mut simulation, 2), expected, "{events:?}");
    }
}

#[test]
fn the_five_seconds_begin_when_another_pod_is_needed_and_not_when_the_last_one_ended() {
    const DOWN: ClusterEvent = ClusterEvent::Policies(17);
    // what happened long before, and what makes another pod necessary then
    let table = [
        (&[ClusterEvent::End { code: 0 }][..], ClusterEvent::Request(1)),
        (&[DOWN, ClusterEvent::End { code: 1 }], ClusterEvent::Request(1)),
        (&[DOWN, ClusterEvent::End { code: 1 }], ClusterEvent::Policies(18)),
        (&[DOWN, ClusterEvent::Vanish], ClusterEvent::Request(1)),
        (&[ClusterEvent::Suspend(true)], ClusterEvent::Suspend(false)),
        (&[ClusterEvent::Stop(Some(1))], ClusterEvent::Stop(None)),
        (&[ClusterEvent::Stop(Some(1))], ClusterEvent::Request(1)),
        (&[ClusterEvent::Request(1), ClusterEvent::TakeBack], ClusterEvent::Request(2)),
        (&[ClusterEvent::Request(1), ClusterEvent::TakeBack], ClusterEvent::Policies(18)),
    ];
    for (before, then) in table {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.happen(ClusterEvent::Older(Some(1)));
        for event in before {
            simulation.happen(*event);
            work(&mut simulation);
            simulation.happen(ClusterEvent::Finish { said: true, code: 0 });
            simulation.wait(3);
        }
        work(&mut simulation);
        simulation.wait(86_400);
        work(&mut simulation);
        assert_eq!(launches(&simulation).0, 1, "{before:?}");
        simulation.happen(then);
        if before.contains(&ClusterEvent::TakeBack) {
            simulation.happen(ClusterEvent::End { code: 1 });
        }
        assert_eq!(seconds_until_launch(&mut simulation, 2), 5, "{before:?} {then:?}");
    }
}
