//! What the library promises of plans: the same on every thread, warm or cold, from a layout, and back again.

use fusion_service::command::application::Application;
use proptest::prelude::*;
use std::collections::BTreeMap;
use streams_compiler::plan::{self, Compiled, JobState, Layout, Plan, Policy};
use streams_compiler::topology::Identity;

type Texts = BTreeMap<u64, Vec<u8>>;

/// Checks the submission and the resizes of an application; one that is refused promises nothing.
pub(crate) fn hold(application: &Application) -> Result<(), TestCaseError> {
    let Ok((source, request)) = application.open() else { return Ok(()) };
    let budget = &application.budget;
    let submit = || plan::submit(&source, &request, budget);
    let Ok(start) = submit() else { return Ok(()) };
    let resize = |job: &Compiled, region: &str, width: i128| {
        plan::resize(job, &[(region.to_owned(), width)], Policy::Sticky, &JobState::default(), budget)
    };
    let restore = |job: &Compiled| plan::restore(&source, &request, &job.layout().to_bytes(), budget).unwrap();

    // Each thread reads and submits for itself, next to one that uses what has been read.
    let cold = || application.open().and_then(|(source, request)| plan::submit(&source, &request, budget)).unwrap();
    let others: Vec<(Plan, Texts)> = std::thread::scope(|scope| {
        let first = scope.spawn(|| said(&cold()));
        let second = scope.spawn(|| said(&cold()));
        let warm = scope.spawn(|| said(&submit().unwrap()));
        [first, second, warm].into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let here = said(&start);
    prop_assert!(others.iter().all(|other| *other == here), "another thread compiles something else");

    // The chain, once from what is known and once from the layout alone.
    let mut current = start;
    for (region, width) in &application.resizes {
        let warm = resize(&current, region, *width);
        let from_layout = restore(&current);
        prop_assert_eq!(texts(&from_layout), texts(&current), "a layout gives other texts");
        let cold = resize(&from_layout, region, *width);
        match (warm, cold) {
            (Ok(warm), Ok(cold)) => {
                prop_assert_eq!(said(&warm), said(&cold), "a replica that only knows the layout resizes otherwise");
                current = warm;
            }
            (Err(warm), Err(cold)) => prop_assert_eq!(warm, cold),
            _ => prop_assert!(false, "only one of two replicas refuses {}={}", region, width),
        }
    }

    // Each region alone, wider and back.
    let (layout, before) = (current.layout(), texts(&current));
    let home = homes(&layout);
    for planned in &current.plan().regions {
        let (name, width) = (&planned.region.name, i128::from(planned.region.width));
        let Ok(wide) = resize(&current, name, width + 2) else { continue };
        // A constraint that changes with the width wins over staying (fuser `sticky`): then there is no way back to
        // promise.
        let wider = wide.layout();
        let now = homes(&wider);
        if home.iter().any(|(identity, id)| now.get(identity) != Some(id)) {
            continue;
        }
        let back = resize(&wide, name, width).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let there_and_back = format!("{name} to {} and back to {width}", width + 2);
        if back.plan().host_pools == current.plan().host_pools {
            prop_assert_eq!(texts(&back), before.clone(), "{}", there_and_back);
        } else {
            // A copy of a host pool is known by its name, which has global channels in it (rule expansion-25). It may
            // have been away, and have another number now. That number is in every text, but no running PE reads it
            // (rule aadl-18).
            prop_assert_eq!(runtime_ids(&back), runtime_ids(&current), "{}", there_and_back);
        }
        prop_assert_eq!(&back.layout().widths, &layout.widths);
    }
    Ok(())
}

fn runtime_ids(job: &Compiled) -> BTreeMap<u64, [u8; 32]> {
    job.plan().elements.iter().map(|element| (element.id, element.runtime_id)).collect()
}

/// The PE of each operator.
fn homes(layout: &Layout) -> BTreeMap<&Identity, u64> {
    let elements = layout.elements.iter();
    let pe_of: BTreeMap<u32, u64> = elements.flat_map(|e| e.operators.iter().map(|index| (*index, e.id))).collect();
    layout.numbering.operators.iter().map(|(identity, index)| (identity, pe_of[index])).collect()
}

fn texts(job: &Compiled) -> Texts {
    let text = |id: u64| {
        let mut text = Vec::new();
        job.render(id, &mut text, &Default::default()).unwrap();
        text
    };
    job.plan().elements.iter().map(|element| (element.id, text(element.id))).collect()
}

/// All that is said of a job.
fn said(job: &Compiled) -> (Plan, Texts) {
    (job.plan().clone(), texts(job))
}
