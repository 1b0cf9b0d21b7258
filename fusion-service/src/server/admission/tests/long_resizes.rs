//! Resizes that take long, and those that wait for them.

use super::*;
use crate::server::memory::Memory;
use std::thread;
use streams_compiler::budget::Limits;
use tokio::task::{JoinHandle, yield_now};

/// The budget of a resize on which workers have worked for so long.
fn worked(admission: &Admission, time: Duration) -> CallBudget {
    let ticket = admission.enter(CallClass::Resize).unwrap();
    ticket.work.pause(time, Keeps::default(), Instant::now());
    CallBudget { work: Some(Arc::clone(&ticket.work)), ..patient() }
}

/// A resize that goes on until it is told to end, and asks its budget meanwhile.
fn endless(admission: &Admission, budget: CallBudget, end: &Arc<AtomicBool>) -> JoinHandle<Result<(), Failure>> {
    endless_of(CallClass::Resize, admission, budget, end)
}

/// The same of another class.
fn endless_of(
    class: CallClass,
    admission: &Admission,
    budget: CallBudget,
    end: &Arc<AtomicBool>,
) -> JoinHandle<Result<(), Failure>> {
    let (admission, end) = (admission.clone(), Arc::clone(end));
    let work = move |budget: &Budget| {
        while !end.load(Ordering::Relaxed) {
            budget.check()?;
            thread::yield_now();
        }
        Ok(())
    };
    tokio::spawn(async move { admission.run(class, &budget, work).await })
}

/// Whether a call of this class, with this budget, gets a worker before its time is over.
async fn is_served(admission: &Admission, class: CallClass, budget: CallBudget, patience: Duration) -> bool {
    let budget = CallBudget { deadline: Some(Instant::now() + patience), ..budget };
    admission.run(class, &budget, |_| Ok(())).await.is_ok()
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_resize_that_stands_aside_is_passed_by_few_resizes_and_only_by_those_that_have_not_taken_long() {
    let (at_once, late) = (Duration::ZERO, LONG_RESIZE);
    let cases = [
        // How many passed it, for how long it has waited, who waits (new resizes, long ones that came before it, and
        // after it, renderings, submissions), who is next.
        (0, at_once, (0, 0, 0, 0, 0), Next::Aside),
        (0, at_once, (0, 0, 3, 3, 3), Next::Aside),
        (0, at_once, (1, 0, 1, 1, 1), Next::Passing),
        (0, at_once, (0, 1, 0, 0, 0), Next::Passing),
        (7, at_once, (1, 0, 0, 0, 0), Next::Passing),
        (8, at_once, (9, 9, 9, 9, 9), Next::Aside),
        (0, late, (9, 9, 9, 9, 9), Next::Aside),
    ];
    for (passed_over, time, (new, before, after, render, submit), expected) in cases {
        let aside = aside(CallClass::Resize, passed_over, time);
        let mut state = State { aside: Some(aside), ..State::default() };
        let long = |number| Waiter { worked: LONG_RESIZE, ..waiter(number) };
        state.waiting.resize.extend((0..before).map(|_| long(1)));
        state.waiting.resize.extend((0..after).map(|_| long(6)));
        state.waiting.resize.extend((0..new).map(|_| Waiter { worked: LONG_RESIZE / 2, ..waiter(7) }));
        state.waiting.render.extend((0..render).map(|_| waiter(0)));
        state.waiting.submit.extend((0..submit).map(|_| waiter(0)));
        for workers in [1, 4] {
            assert_eq!(state.next(workers), Some(expected), "{passed_over} {time:?} {new} {before} {after} {render}");
        }
    }
}

#[test]
fn nobody_makes_way_for_a_resize_while_the_next_worker_is_that_of_another_class() {
    let cases = [
        // How often renderings and submissions were passed over, how many of them wait, how many submissions are
        // compiled by one of two workers, whether what takes long makes way.
        ((0, 0), (0, 0), 0, true),
        ((PATIENCE - 1, 0), (1, 0), 0, true),
        ((PATIENCE, 0), (1, 0), 0, false),
        ((PATIENCE, 0), (0, 0), 0, true),
        ((0, PATIENCE), (0, 1), 0, false),
        // The other worker is kept free of submissions.
        ((0, PATIENCE), (0, 1), 1, true),
    ];
    for (passed_over, (render, submit), compiled, expected) in cases {
        let mut state = State::default();
        (state.passed_over.render, state.passed_over.submit) = passed_over;
        state.working.submit = compiled;
        state.waiting.resize.push(waiter(1));
        state.waiting.render.extend((0..render).map(|_| waiter(0)));
        state.waiting.submit.extend((0..submit).map(|_| waiter(0)));
        for class in [CallClass::Resize, CallClass::Render] {
            assert_eq!(state.is_awaited(class, 2), expected, "{passed_over:?} {render} {submit} {compiled}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_does_not_wait_for_as_many_that_take_long_as_there_are_workers() {
    for workers in [1, 2, 3] {
        let admission = admission(workers, 100);
        let end = Arc::new(AtomicBool::new(false));
        let begin = |_| endless(&admission, worked(&admission, LONG_RESIZE), &end);
        let long: Vec<_> = (0..workers).map(begin).collect();
        while admission.working().resize < workers {
            yield_now().await;
        }
        for _ in 0..3 {
            assert!(is_served(&admission, CallClass::Resize, patient(), LONG).await, "{workers} workers");
        }
        // Whoever made way goes on.
        while admission.has_aside() || admission.working().resize < workers {
            yield_now().await;
        }
        end.store(true, Ordering::Relaxed);
        for long in long {
            long.await.unwrap().unwrap();
        }
        assert_eq!((admission.working(), admission.waiting()), (PerClass::default(), PerClass::default()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rendering_that_restores_its_job_for_long_makes_way_for_resizes() {
    let admission = admission(1, 100);
    let end = Arc::new(AtomicBool::new(false));
    let long = endless_of(CallClass::Render, &admission, patient(), &end);
    while admission.working().render < 1 {
        yield_now().await;
    }
    for class in [CallClass::Render, CallClass::Submit] {
        assert!(!is_served(&admission, class, patient(), LONG_RESIZE + SHORT).await, "{class:?}");
    }
    assert!(is_served(&admission, CallClass::Resize, patient(), LONG).await);
    while admission.has_aside() {
        yield_now().await;
    }
    assert_eq!(admission.working().render, 1);
    end.store(true, Ordering::Relaxed);
    long.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_makes_way_for_no_others() {
    let admission = admission(1, 100);
    let end = Arc::new(AtomicBool::new(false));
    let long = endless(&admission, worked(&admission, LONG_RESIZE), &end);
    while admission.working().resize < 1 {
        yield_now().await;
    }
    for class in [CallClass::Render, CallClass::Submit, CallClass::DryRun] {
        assert!(!is_served(&admission, class, patient(), SHORT).await, "{class:?}");
    }
    assert!(!is_served(&admission, CallClass::Resize, worked(&admission, LONG_RESIZE), SHORT).await);
    assert!(is_served(&admission, CallClass::Resize, patient(), LONG).await);
    end.store(true, Ordering::Relaxed);
    long.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_aside_has_memory_for_what_it_has_made_or_goes_on() {
    // Bytes of the job that it begins from, if that is there, and what was taken for one that it restores; what the job
    // that it begins from has of something, and the new one; what it takes then.
    let cases = [
        (None, 0, (1, 1), 100),
        (Some(5), 0, (1, 1), 25),
        (Some(20), 0, (1, 1), 40),
        (Some(70), 0, (1, 1), 100),
        (Some(5), 0, (3, 2), 25),
        (Some(5), 0, (2, 9), 45),
        (Some(5), 0, (0, 3), 30),
        (Some(5), 0, (1, 100_000), 100),
        (Some(20), 0, (3, 2), 40),
        (None, 30, (1, 1), 30),
        (None, 70, (1, 1), 30),
    ];
    for (base, reserved, (before, now), takes) in cases {
        let memory = Memory::new(100, Arc::new(Metrics::new()));
        let admission = admission(1, 100);
        let end = Arc::new(AtomicBool::new(false));
        let share = Arc::new(memory.share(CallClass::Resize));
        let limits = Limits { aadl_bytes: 400, ..Limits::default() };
        let budget = CallBudget { limits, memory: Some(share), ..worked(&admission, LONG_RESIZE) };
        if let Some(base) = base {
            budget.work.as_ref().unwrap().begins_from(base);
        }
        budget.work.as_ref().unwrap().reserves(reserved);
        let has_told = Arc::new(AtomicBool::new(false));
        let (told, ended) = (Arc::clone(&has_told), Arc::clone(&end));
        let work = move |budget: &Budget| {
            budget.give_way.as_ref().unwrap().grows(before, now);
            // What is smaller takes nothing back.
            budget.give_way.as_ref().unwrap().grows(1, 1);
            told.store(true, Ordering::Relaxed);
            while !ended.load(Ordering::Relaxed) {
                budget.check()?;
                thread::yield_now();
            }
            Ok(())
        };
        let long = tokio::spawn({
            let admission = admission.clone();
            async move { admission.run(CallClass::Resize, &budget, work).await }
        });
        while !has_told.load(Ordering::Relaxed) {
            yield_now().await;
        }
        let others = memory.share(CallClass::Resize);
        others.take(101 - takes).await.unwrap();
        assert!(!is_served(&admission, CallClass::Resize, patient(), SHORT).await, "{base:?} {now}");
        drop(others);
        let taken = {
            let memory = memory.clone();
            move |_: &Budget| Ok(memory.taken().0)
        };
        assert_eq!(admission.run(CallClass::Resize, &patient(), taken).await.unwrap(), takes, "{base:?} {now}");
        end.store(true, Ordering::Relaxed);
        long.await.unwrap().unwrap();
        assert_eq!(memory.taken().0, 0, "{base:?} {now}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_made_way_for_some_that_take_long_waits_for_one_of_them() {
    let admission = admission(1, 100);
    let [end, end_others] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let mut all = vec![endless(&admission, worked(&admission, LONG_RESIZE), &end)];
    while admission.working().resize < 1 {
        yield_now().await;
    }
    all.extend((0..3).map(|_| endless(&admission, patient(), &end_others)));
    while !admission.has_aside() || admission.waiting().resize < 2 {
        yield_now().await;
    }
    tokio::time::sleep(LONG_RESIZE).await;
    end_others.store(true, Ordering::Relaxed);
    while admission.has_aside() {
        yield_now().await;
    }
    // It keeps the worker for as long as it has waited.
    assert_eq!(admission.waiting().resize, 2);
    end.store(true, Ordering::Relaxed);
    for resize in all {
        resize.await.unwrap().unwrap();
    }
}

/// It would stand for a thread that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn who_helps_a_resize_does_not_stand_aside() {
    let admission = admission(1, 100);
    let (budget, waits) = (worked(&admission, LONG_RESIZE), admission.clone());
    let has_begun = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&has_begun);
    let work = move |budget: &Budget| {
        begun.store(true, Ordering::Relaxed);
        while waits.waiting().resize == 0 {
            thread::yield_now();
        }
        // It comes back although somebody waits.
        let helped = thread::scope(|scope| scope.spawn(|| budget.check()).join()).unwrap();
        let passed = waits.waiting().resize == 0;
        budget.check()?;
        helped?;
        Ok((passed, waits.waiting().resize == 0))
    };
    let resize = tokio::spawn({
        let admission = admission.clone();
        async move { admission.run(CallClass::Resize, &budget, work).await }
    });
    // It makes way before it begins, too.
    while !has_begun.load(Ordering::Relaxed) {
        yield_now().await;
    }
    assert!(is_served(&admission, CallClass::Resize, patient(), LONG).await);
    assert_eq!(resize.await.unwrap().unwrap(), (false, true));
}
