//! The order in which calls get workers, and when workers and tickets are free again.

mod long_resizes;

use super::idle_cores::HELPER;
use super::*;
use crate::server::work::Keeps;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use streams_compiler::error::Error;
use streams_process::telemetry::testing;
use tracing::Instrument;

fn admission(workers: usize, tickets: usize) -> Admission {
    let tickets = PerClass { resize: tickets, render: tickets, submit: tickets, dry_run: tickets };
    Admission::new(Capacity { workers, tickets }, Arc::new(Metrics::new()))
}

fn patient() -> CallBudget {
    CallBudget { deadline: Some(Instant::now() + Duration::from_secs(30)), ..CallBudget::default() }
}

fn waiter(number: u64) -> Waiter {
    Waiter { number, place: Place::new(number), worked: Duration::ZERO, grant: oneshot::channel().0 }
}

/// Work that came as the fifth, and has stood aside for so long.
fn aside(class: CallClass, passed_over: u32, time: Duration) -> Aside {
    let since = Instant::now().checked_sub(time).unwrap();
    Aside { class, place: Some(Place::new(5)), since, passed_over, resume: oneshot::channel().0 }
}

/// Who gets a worker, in order, if `waiting` wait and each is done before the next begins.
fn order(waiting: PerClass<usize>) -> String {
    let mut state = State::default();
    for class in CallClass::ALL {
        for number in 0..*waiting.of(class) {
            state.waiting.of_mut(class).push(waiter(number as u64));
        }
    }
    let mut order = String::new();
    while let Some(Next::Waiting(class)) = state.next(1) {
        take_first(state.waiting.of_mut(class), |_| true);
        state.passed_over_by(class);
        order.push(match class {
            CallClass::Resize => 'R',
            CallClass::Render => 'r',
            CallClass::Submit => 's',
            CallClass::DryRun => 'd',
        });
    }
    order
}

#[test]
fn the_urgent_go_first_and_nobody_starves() {
    let cases = [
        ((0, 0, 0, 0), ""),
        ((1, 1, 1, 1), "Rrsd"),
        ((3, 2, 2, 0), "RRRrrss"),
        ((9, 0, 1, 0), "RRRRRRRRsR"),
        ((18, 0, 2, 0), "RRRRRRRRsRRRRRRRRsRR"),
        ((10, 1, 1, 0), "RRRRRRRRsrRR"),
        ((0, 9, 1, 0), "rrrrrrrrsr"),
        ((0, 0, 9, 2), "ssssssssdsd"),
    ];
    for ((resize, render, submit, dry_run), expected) in cases {
        assert_eq!(order(PerClass { resize, render, submit, dry_run }), expected);
    }
}

#[test]
fn submissions_leave_one_of_several_workers_free() {
    let mut state = State::default();
    state.waiting.submit.push(waiter(0));
    let submit = Some(Next::Waiting(CallClass::Submit));
    let table = [(1, 0, submit), (2, 0, submit), (2, 1, None), (4, 2, submit), (4, 3, None)];
    for (workers, submits, expected) in table {
        state.working.submit = submits;
        assert_eq!(state.next(workers), expected, "{submits} of {workers} workers");
    }
    state.waiting.resize.push(waiter(1));
    assert_eq!(state.next(4), Some(Next::Waiting(CallClass::Resize)));
}

#[tokio::test]
async fn a_call_that_comes_back_for_its_next_step_is_before_those_that_came_later() {
    let admission = admission(1, 10);
    let tickets = [(); 3].map(|()| admission.enter(CallClass::Resize).unwrap());
    let first =
        admission.shared.queue(CallClass::Resize, Some(tickets[0].place.clone()), Duration::ZERO).1.await.unwrap();
    let mut later: Vec<_> = tickets[1..]
        .iter()
        .map(|ticket| admission.shared.queue(CallClass::Resize, Some(ticket.place.clone()), Duration::ZERO).1)
        .collect();
    let (_, mut new) = admission.shared.queue(CallClass::Resize, None, Duration::ZERO);
    let (_, mut again) = admission.shared.queue(CallClass::Resize, Some(tickets[0].place.clone()), Duration::ZERO);
    drop(first);
    drop(again.try_recv().unwrap());
    for later in &mut later {
        assert!(new.try_recv().is_err());
        drop(later.try_recv().unwrap());
    }
    drop(new.try_recv().unwrap());
}

#[tokio::test]
async fn who_gets_a_better_place_while_it_waits_is_served_in_that() {
    let admission = admission(1, 10);
    let places = [1, 2, 3, 4].map(Place::new);
    let busy = admission.shared.queue(CallClass::Resize, None, Duration::ZERO).1.await.unwrap();
    let mut waiting =
        [1, 2, 3].map(|i: usize| admission.shared.queue(CallClass::Resize, Some(places[i].clone()), Duration::ZERO).1);
    // The first to arrive waits for what the last one began.
    places[0].wait_for(&places[3]);
    drop(busy);
    for next in [2, 0, 1] {
        let served: Vec<usize> = (0..3).filter(|number| !waiting[*number].is_empty()).collect();
        assert_eq!(served, [next]);
        drop(waiting[next].try_recv().unwrap());
    }
}

#[test]
fn tickets_are_counted_per_class_and_come_back() {
    let admission = admission(1, 2);
    let first = admission.enter(CallClass::Submit).unwrap();
    let _second = admission.enter(CallClass::Submit).unwrap();
    let overloaded = admission.enter(CallClass::Submit).unwrap_err();
    assert!(overloaded.retry_after >= Duration::from_millis(100), "{overloaded:?}");
    let _resize = admission.enter(CallClass::Resize).unwrap();
    drop(first);
    let _third = admission.enter(CallClass::Submit).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_to_the_worker_goes_from_step_to_step() {
    let admission = admission(1, 100);
    let ticket = admission.enter(CallClass::Submit).unwrap();
    let budget = CallBudget { work: Some(Arc::clone(&ticket.work)), ..patient() };
    // In its first step it has made way for an hour, as it were.
    let now = Instant::now();
    let hour = Duration::from_secs(3600);
    ticket.work.pause(Duration::ZERO, Keeps::after(now, now + hour), now);
    for (budget, keeps) in [(&budget, true), (&budget, true), (&patient(), false)] {
        let (began, begins) = mpsc::channel();
        let step = {
            let (admission, budget) = (admission.clone(), budget.clone());
            tokio::spawn(async move {
                let resize_waits = {
                    let shared = Arc::clone(&admission.shared);
                    move || !shared.lock().waiting.resize.is_empty()
                };
                let work = move |budget: &Budget| {
                    began.send(()).unwrap();
                    while !resize_waits() {
                        std::thread::yield_now();
                    }
                    budget.check()?;
                    Ok(resize_waits())
                };
                admission.run(CallClass::Submit, &budget, work).await
            })
        };
        tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
        admission.run(CallClass::Resize, &patient(), |_| Ok(())).await.unwrap();
        assert_eq!(step.await.unwrap().unwrap(), keeps);
    }
}

#[tokio::test]
async fn only_short_work_passes_who_waits_for_its_next_step() {
    let admission = admission(1, 100);
    for (class, passes) in [(CallClass::Resize, true), (CallClass::Render, true), (CallClass::Submit, false)] {
        let before = admission.shared.lock().short_work;
        admission.run(class, &patient(), |_| Ok(())).await.unwrap();
        assert_eq!(admission.shared.lock().short_work > before, passes, "{class:?}");
    }
}

#[tokio::test]
async fn no_more_work_at_once_than_workers() {
    let admission = admission(2, 100);
    let (began, begins) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (admission, began, gate) = (admission.clone(), began.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let work = move |_: &Budget| {
                    began.send(()).unwrap();
                    gate.lock().recv().unwrap();
                    Ok(())
                };
                admission.run(CallClass::Resize, &patient(), work).await
            })
        })
        .collect();
    while admission.waiting().resize != 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(admission.working().resize, 2);
    (0..4).for_each(|_| release.send(()).unwrap());
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(begins.try_iter().count(), 4);
    assert_eq!((admission.working(), admission.waiting()), (PerClass::default(), PerClass::default()));
}

#[test]
fn who_stands_aside_is_passed_by_few_and_only_by_what_is_short() {
    let waiter = || waiter(0);
    let cases = [
        // How many passed it, who waits (resizes, renderings, submissions), who is next.
        (0, (0, 0, 0), Next::Aside),
        (0, (0, 0, 3), Next::Aside),
        (0, (1, 0, 3), Next::Waiting(CallClass::Resize)),
        (7, (1, 1, 0), Next::Waiting(CallClass::Resize)),
        (7, (0, 1, 0), Next::Waiting(CallClass::Render)),
        (8, (9, 9, 9), Next::Aside),
    ];
    for (passed_over, (resize, render, submit), expected) in cases {
        let aside = aside(CallClass::Submit, passed_over, Duration::from_secs(9));
        let mut state = State { aside: Some(aside), ..State::default() };
        state.waiting.resize.extend((0..resize).map(|_| waiter()));
        state.waiting.render.extend((0..render).map(|_| waiter()));
        state.waiting.submit.extend((0..submit).map(|_| waiter()));
        assert_eq!(state.next(1), Some(expected), "{passed_over} {resize} {render} {submit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_resizes_lets_a_submission_go_on() {
    let admission = admission(1, 100);
    let log = Arc::new(Mutex::new(String::new()));
    let write = |letter| {
        let log = Arc::clone(&log);
        move || log.lock().push(letter)
    };
    // The submission goes on until all resizes are done. The first of them waits until all others are there.
    let resizes = 40;
    let (flood, first) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(true)));
    let submission = {
        let (admission, log, submits) = (admission.clone(), Arc::clone(&log), write('s'));
        let work = move |budget: &Budget| {
            while log.lock().matches('R').count() < resizes {
                submits();
                budget.check()?;
            }
            Ok(())
        };
        tokio::spawn(async move { admission.run(CallClass::Submit, &patient(), work).await })
    };
    while admission.working().submit != 1 {
        tokio::task::yield_now().await;
    }
    let flooding: Vec<_> = (0..resizes)
        .map(|_| {
            let (admission, resized) = (admission.clone(), write('R'));
            let (flood, first) = (Arc::clone(&flood), Arc::clone(&first));
            let work = move |_: &Budget| {
                if first.swap(false, Ordering::Relaxed) {
                    flood.wait();
                }
                resized();
                Ok(())
            };
            tokio::spawn(async move { admission.run(CallClass::Resize, &patient(), work).await })
        })
        .collect();
    while admission.waiting().resize < resizes - 1 || !admission.has_aside() {
        tokio::task::yield_now().await;
    }
    tokio::task::spawn_blocking(move || flood.wait()).await.unwrap();
    for task in flooding.into_iter().chain([submission]) {
        task.await.unwrap().unwrap();
    }
    let log = log.lock();
    let longest = log.split('s').map(str::len).max();
    assert!(longest <= Some(PATIENCE as usize), "{longest:?} resizes in a row");
    assert_eq!((admission.working(), admission.waiting()), (PerClass::default(), PerClass::default()));
    assert!(!admission.has_aside());
}

#[tokio::test]
async fn expired_or_abandoned_work_is_never_started() {
    let admission = admission(1, 100);
    let (release, gate) = mpsc::channel::<()>();
    let first = {
        let admission = admission.clone();
        tokio::spawn(
            async move { admission.run(CallClass::Resize, &patient(), move |_| Ok(gate.recv().is_ok())).await },
        )
    };
    while admission.working().resize != 1 {
        tokio::task::yield_now().await;
    }
    let must_not_run = |_: &Budget| -> Result<(), Failure> { panic!("was started") };
    let soon = CallBudget { deadline: Some(Instant::now() + Duration::from_millis(20)), ..CallBudget::default() };
    let expired = admission.run(CallClass::Resize, &soon, must_not_run).await;
    assert!(matches!(expired, Err(Failure::Compiler(Error::DeadlineExceeded))), "{expired:?}");

    let cancelled = patient();
    cancelled.cancellation.cancel();
    let given_up = admission.run(CallClass::Resize, &cancelled, must_not_run).await;
    assert!(matches!(given_up, Err(Failure::Compiler(Error::Cancelled))), "{given_up:?}");

    // A caller who goes away leaves the queue.
    let budget = patient();
    let mut dropped = Box::pin(admission.run(CallClass::Submit, &budget, must_not_run));
    assert!(futures::poll!(&mut dropped).is_pending());
    assert_eq!(admission.waiting().submit, 1);
    drop(dropped);
    assert_eq!(admission.waiting().submit, 0);

    release.send(()).unwrap();
    assert!(first.await.unwrap().unwrap());
    assert_eq!(admission.working(), PerClass::default());
}

#[tokio::test]
async fn a_panic_costs_one_request() {
    let admission = admission(1, 100);
    let failed = admission.run(CallClass::Render, &patient(), |_| -> Result<(), Failure> { panic!("a defect") }).await;
    assert!(matches!(failed, Err(Failure::Defect(_))), "{failed:?}");
    assert_eq!(admission.run(CallClass::Render, &patient(), |_| Ok(7)).await.unwrap(), 7);
}

#[tokio::test]
async fn who_is_granted_a_worker_and_goes_away_gives_it_back() {
    let admission = admission(1, 100);
    for _ in 0..100 {
        let (_, granted) = admission.shared.queue(CallClass::Submit, None, Duration::ZERO);
        assert_eq!(admission.working().submit, 1);
        drop(granted);
    }
    assert_eq!(admission.working(), PerClass::default());
    admission.run(CallClass::Submit, &patient(), |_| Ok(())).await.unwrap();
}

fn is_helper() -> bool {
    std::thread::current().name() == Some(HELPER)
}

/// Runs a resize whose `work` is shared with idle cores.
fn shared_resize(
    admission: &Admission,
    work: impl Fn(&dyn Fn() -> bool) + Send + Sync + 'static,
) -> tokio::task::JoinHandle<Result<(), Failure>> {
    let admission = admission.clone();
    let share = move |budget: &Budget| {
        budget.cores.as_ref().unwrap().share(&work);
        Ok(())
    };
    tokio::spawn(async move { admission.run(CallClass::Resize, &patient(), share).await })
}

#[tokio::test]
async fn a_resize_has_the_cores_of_all_idle_workers() {
    for workers in [1, 2, 4] {
        let admission = admission(workers, 100);
        // Nobody comes through before so many threads are there.
        let all = Arc::new(Barrier::new(workers));
        shared_resize(&admission, move |_| {
            all.wait();
        })
        .await
        .unwrap()
        .unwrap();
        assert_eq!(admission.shared.lock().lent, 0);
        assert_eq!(admission.working(), PerClass::default());
    }
}

#[tokio::test]
async fn a_core_that_is_lent_goes_back_to_who_needs_it() {
    let admission = admission(2, 100);
    let (began, begins) = mpsc::channel();
    let [left, was_seen] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    // The helper leaves when somebody comes. The caller waits for that, and may always go on.
    let first = {
        let (left, was_seen) = (Arc::clone(&left), Arc::clone(&was_seen));
        shared_resize(&admission, move |may_go_on| {
            if is_helper() {
                began.send(()).unwrap();
                while may_go_on() {}
                left.store(true, Ordering::Release);
            } else {
                while !(left.load(Ordering::Acquire) && was_seen.load(Ordering::Acquire)) {
                    assert!(may_go_on());
                }
            }
        })
    };
    tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
    assert_eq!((admission.working().resize, admission.shared.lock().lent), (1, 1));
    assert!(!left.load(Ordering::Acquire));
    // Who comes does not wait for the helper.
    let (_, granted) = admission.shared.queue(CallClass::Submit, None, Duration::ZERO);
    assert_eq!(admission.working(), PerClass { resize: 1, submit: 1, ..PerClass::default() });
    was_seen.store(true, Ordering::Release);
    first.await.unwrap().unwrap();
    assert_eq!(admission.shared.lock().lent, 0);
    // There is nothing to lend while it works.
    shared_resize(&admission, |_| assert!(!is_helper())).await.unwrap().unwrap();
    drop(granted);
    assert_eq!(admission.working(), PerClass::default());
}

#[tokio::test]
async fn only_resizes_have_help_and_all_may_make_way() {
    let admission = admission(4, 100);
    for class in CallClass::ALL {
        let budget = patient();
        let found = admission.run(class, &budget, |budget| Ok((budget.cores.is_some(), budget.give_way.is_some())));
        assert_eq!(found.await.unwrap(), (class == CallClass::Resize, true), "{class:?}");
    }
}

#[tokio::test]
async fn a_helper_that_panics_costs_its_request() {
    let admission = admission(2, 100);
    let failed = shared_resize(&admission, |_| assert!(!is_helper(), "a defect")).await.unwrap();
    assert!(matches!(failed, Err(Failure::Defect(_))), "{failed:?}");
    assert_eq!(admission.shared.lock().lent, 0);
    shared_resize(&admission, |_| {}).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_wait_for_a_worker_is_a_span_of_the_call_also_if_the_call_ends_meanwhile() {
    let collected = testing::collect(&["fusion_service"]);
    let admission = admission(1, 10);
    let (release, blocked) = mpsc::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let first = tokio::spawn({
        let admission = admission.clone();
        async move {
            let work = move |_: &Budget| {
                let _ = begun.send(());
                let _ = blocked.recv();
                Ok(())
            };
            admission.run(CallClass::Resize, &patient(), work).await
        }
    });
    has_begun.await.unwrap();
    // It gives up while it waits.
    let soon = CallBudget { deadline: Some(Instant::now() + Duration::from_millis(20)), ..CallBudget::default() };
    let gives_up = admission.run(CallClass::Render, &soon, |_| Ok(())).instrument(tracing::info_span!("gives up"));
    assert!(gives_up.await.is_err());
    // It waits until the first one is done.
    let budget = patient();
    let waits = admission.run(CallClass::Resize, &budget, |_| Ok(())).instrument(tracing::info_span!("waits"));
    let releases = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        release.send(()).unwrap();
    };
    let (waited, ()) = tokio::join!(waits, releases);
    waited.unwrap();
    first.await.unwrap().unwrap();
    let spans = collected.spans();
    let seen = spans.iter().filter(|span| span.name == "wait in queue");
    let seen: Vec<_> = seen.map(|span| (span.parent.as_deref().unwrap(), span.attribute("queue").unwrap())).collect();
    assert_eq!(seen, [("gives up", "render"), ("waits", "resize")], "{spans:#?}");
    assert!(spans.iter().filter(|span| span.name == "wait in queue").all(|span| span.took >= WORTH_A_SPAN));
}
