//! Who gets memory, who waits for it and who is refused.

use super::*;
use CallClass::{DryRun, Render, Resize, Submit};
use tokio::task::JoinHandle;

fn memory(units: u64) -> Memory {
    Memory::new(units * SMALL, Arc::new(Metrics::new()))
}

async fn with(memory: &Memory, class: CallClass, units: u64) -> Result<Share, Denied> {
    let share = memory.share(class);
    share.take(units * SMALL).await.map(|()| share)
}

#[tokio::test(start_paused = true)]
async fn each_class_and_size_has_its_ceiling() {
    // What is taken already, who asks, for how much, and whether it gets it.
    let cases = [
        (0, Submit, 48, Ok(())),
        (0, Submit, 49, Err(Denied::TooMuch { most: 48 * SMALL })),
        (0, Resize, 56, Ok(())),
        (0, Resize, 57, Err(Denied::TooMuch { most: 56 * SMALL })),
        (40, Submit, 8, Ok(())),
        (40, Submit, 9, Err(Denied::Busy)),
        (40, DryRun, 9, Err(Denied::Busy)),
        (40, Resize, 16, Ok(())),
        (40, Render, 17, Err(Denied::Busy)),
        (56, Submit, 1, Ok(())),
        (56, Submit, 2, Err(Denied::Busy)),
        (56, Resize, 1, Ok(())),
    ];
    for (taken, class, bytes, expected) in cases {
        let memory = memory(64);
        let _others = with(&memory, Resize, taken).await.unwrap();
        let result = with(&memory, class, bytes).await;
        assert_eq!(result.as_ref().map(|_| ()), expected.as_ref().map(|&()| ()), "{taken} {class:?} {bytes}");
        drop(result);
        assert_eq!(memory.taken().0, taken * SMALL, "{taken} {class:?} {bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_is_told_at_once_and_what_is_in_use_counts_even_if_there_is_no_room() {
    let memory = memory(64);
    let now = |class, units: u64| {
        let share = memory.share(class);
        share.take_if_spare(units * SMALL).map(|()| share)
    };
    let first = now(Submit, 40).unwrap();
    assert_eq!(now(Submit, 9).err(), Some(Denied::Busy));
    assert_eq!(now(Render, 57).err(), Some(Denied::TooMuch { most: 56 * SMALL }));
    let second = now(Render, 16).unwrap();
    let in_use = memory.charge(Render, 30 * SMALL);
    assert_eq!((memory.taken().0, in_use.bytes()), (86 * SMALL, 30 * SMALL));
    assert_eq!(now(Render, 1).err(), Some(Denied::Busy));
    assert_eq!(with(&memory, Render, 1).await.err(), Some(Denied::Busy));
    drop(in_use);
    let _small = now(Render, 1).unwrap();
    drop((first, second));
    assert_eq!(memory.taken().0, SMALL);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_those_who_wait_in_order() {
    let memory = memory(64);
    let first = with(&memory, Resize, 50).await.unwrap();
    let wait = |class, bytes| {
        let memory = memory.clone();
        tokio::spawn(async move { with(&memory, class, bytes).await })
    };
    let large = wait(Resize, 40);
    while memory.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    // It would fit, but the large one came before.
    let behind = wait(Resize, 4);
    while memory.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    // Small ones do not wait for it.
    let _small = with(&memory, Submit, 1).await.unwrap();
    assert_eq!(memory.waiting(), 2);
    first.keep(10 * SMALL);
    let large = large.await.unwrap().unwrap();
    assert_eq!(large.bytes(), 40 * SMALL);
    let behind = behind.await.unwrap().unwrap();
    drop((large, behind, first));
    assert_eq!(memory.taken(), (SMALL, 56 * SMALL - SMALL));
}

#[tokio::test(start_paused = true)]
async fn those_who_hold_memory_do_not_wait_for_each_other() {
    let memory = memory(64);
    let one = with(&memory, Resize, 25).await.unwrap();
    let other = with(&memory, Resize, 25).await.unwrap();
    let waits = tokio::spawn(async move {
        one.take(20 * SMALL).await.unwrap();
        one.bytes()
    });
    while memory.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    let began = time::Instant::now();
    assert_eq!(other.take(20 * SMALL).await, Err(Denied::Busy));
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(other);
    assert_eq!(waits.await.unwrap(), 45 * SMALL);
    assert_eq!(memory.taken().0, 0);
}

/// A call that holds little and then takes so many units more; when it has them, it says so and gives them back.
fn grow(
    memory: &Memory,
    class: CallClass,
    units: u64,
    served: &Served,
    name: &'static str,
) -> JoinHandle<Result<(), Denied>> {
    let (memory, served) = (memory.clone(), Arc::clone(served));
    tokio::spawn(async move {
        let share = memory.share(class);
        share.take(LITTLE).await?;
        share.take(units * SMALL).await?;
        served.lock().push(name);
        Ok(())
    })
}

/// The same for a call that has nothing before.
fn enter(memory: &Memory, class: CallClass, units: u64, served: &Served, name: &'static str) {
    let (memory, served) = (memory.clone(), Arc::clone(served));
    tokio::spawn(async move {
        let _share = with(&memory, class, units).await.unwrap();
        served.lock().push(name);
    });
}

type Served = Arc<Mutex<Vec<&'static str>>>;
const LITTLE: u64 = 1 << 10;

async fn until_waiting(memory: &Memory, count: usize) {
    while memory.waiting() != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_holds_memory_waits_in_a_line_that_is_short() {
    let (memory, served) = (memory(64), Served::default());
    let first = with(&memory, Resize, 40).await.unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut line = Vec::new();
    for (count, name) in (1..).zip(names) {
        line.push(grow(&memory, Resize, 30, &served, name));
        until_waiting(&memory, count).await;
    }
    let began = time::Instant::now();
    assert_eq!(grow(&memory, Resize, 30, &served, "one too many").await.unwrap(), Err(Denied::Busy));
    assert_eq!(began.elapsed(), Duration::ZERO);
    // Longer than those wait who have nothing to lose.
    time::advance(LINE_WAIT - Duration::from_secs(1)).await;
    drop(first);
    for call in line {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    assert_eq!(*served.lock(), names);
    assert_eq!(memory.taken().0, 0);
    // Their places are free again.
    let mut again = Vec::new();
    for _ in names {
        again.push(memory.share(Resize).place().await.unwrap());
    }
    let began = time::Instant::now();
    memory.share(Resize).place().await.unwrap_err();
    assert_eq!(began.elapsed(), WAIT);
    drop(again);
    memory.share(Resize).place().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let (memory, served) = (memory(64), Served::default());
    let _first = with(&memory, Resize, 40).await.unwrap();
    let began = time::Instant::now();
    assert_eq!(grow(&memory, Resize, 30, &served, "line").await.unwrap(), Err(Denied::Busy));
    assert_eq!(began.elapsed(), LINE_WAIT);
    let began = time::Instant::now();
    assert_eq!(with(&memory, Resize, 30).await.unwrap_err(), Denied::Busy);
    assert_eq!(began.elapsed(), WAIT);
    assert_eq!(memory.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_kept_by_who_does_not_know_yet_how_much_it_needs() {
    let (memory, served) = (memory(64), Served::default());
    let first = with(&memory, Resize, 40).await.unwrap();
    let early = memory.share(Resize);
    early.take(LITTLE).await.unwrap();
    let place = early.place().await.unwrap();
    let late = grow(&memory, Resize, 30, &served, "late");
    until_waiting(&memory, 1).await;
    let early = {
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            early.take_at(30 * SMALL, Some(place)).await.unwrap();
            served.lock().push("early");
        })
    };
    until_waiting(&memory, 2).await;
    drop(first);
    early.await.unwrap();
    late.await.unwrap().unwrap();
    assert_eq!(*served.lock(), ["early", "late"]);
}

#[tokio::test(start_paused = true)]
async fn the_line_and_those_who_have_nothing_take_turns() {
    let (memory, served) = (memory(64), Served::default());
    let first = with(&memory, Resize, 40).await.unwrap();
    for (count, name) in [(1, "line 1"), (2, "line 2"), (3, "line 3")] {
        drop(grow(&memory, Resize, 30, &served, name));
        until_waiting(&memory, count).await;
    }
    for (count, name) in [(4, "new 1"), (5, "new 2")] {
        enter(&memory, Resize, 30, &served, name);
        until_waiting(&memory, count).await;
    }
    drop(first);
    until_waiting(&memory, 0).await;
    while memory.taken().0 > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*served.lock(), ["line 1", "new 1", "line 2", "new 2", "line 3"]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_unserved_has_used_its_turn() {
    let (memory, served) = (memory(64), Served::default());
    let first = with(&memory, Resize, 40).await.unwrap();
    let large = memory.share(Resize);
    large.take(LITTLE).await.unwrap();
    let large = tokio::spawn(async move { large.take(30 * SMALL).await.map(|()| large) });
    until_waiting(&memory, 1).await;
    let small = grow(&memory, Resize, 10, &served, "small");
    until_waiting(&memory, 2).await;
    let began = time::Instant::now();
    // More than there is, as long as the large one works.
    enter(&memory, Resize, 50, &served, "new 1");
    until_waiting(&memory, 3).await;
    time::sleep(WAIT / 2).await;
    enter(&memory, Resize, 50, &served, "new 2");
    until_waiting(&memory, 4).await;
    drop(first);
    let _large = large.await.unwrap().unwrap();
    small.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), WAIT);
}

#[tokio::test(start_paused = true)]
async fn long_calls_have_few_places_and_take_none_from_urgent_ones() {
    let memory = memory(64);
    let _submission = memory.share(Submit).place().await.unwrap();
    let _dry_run = memory.share(DryRun).place().await.unwrap();
    memory.share(Submit).place().await.unwrap_err();
    let _resize = memory.share(Resize).place().await.unwrap();
    let _rendering = memory.share(Render).place().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_with_memory_that_is_kept_for_small_calls() {
    let (memory, served) = (memory(64), Served::default());
    let _large = with(&memory, Resize, 50).await.unwrap();
    let mut small = Vec::new();
    for _ in 0..7 {
        small.push(with(&memory, Submit, 1).await.unwrap());
    }
    let began = time::Instant::now();
    assert_eq!(grow(&memory, Resize, 5, &served, "large").await.unwrap(), Err(Denied::Busy));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_takes_nothing_and_lets_others_pass() {
    let memory = memory(64);
    let _first = with(&memory, Resize, 50).await.unwrap();
    let leaving = {
        let memory = memory.clone();
        tokio::spawn(async move { with(&memory, Resize, 40).await.map(drop) })
    };
    while memory.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    let behind = {
        let memory = memory.clone();
        tokio::spawn(async move { with(&memory, Resize, 4).await.map(|share| share.bytes()) })
    };
    while memory.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    leaving.abort();
    assert_eq!(behind.await.unwrap(), Ok(4 * SMALL));
    assert_eq!(memory.taken(), (50 * SMALL, 54 * SMALL));
}

#[tokio::test(start_paused = true)]
async fn a_call_lacks_for_a_job_what_it_has_not_taken_for_what_is_parsed() {
    // bytes that it has, of these for what is parsed, bytes of the job -> what it lacks
    let table = [
        (0, 0, 10, 10),
        (20, 0, 10, 10),
        (20, 8, 10, 2),
        (20, 16, 10, 0),
        // A call may have 56, of which it leaves three and a half.
        (20, 0, 100, 32),
        (20, 16, 100, 32),
        (56, 0, 100, 0),
    ];
    for (has, parsed, job, expected) in table {
        let share = with(&memory(64), Resize, has).await.unwrap();
        share.is_parsed_to(parsed * SMALL);
        assert_eq!(share.lacks_for_job(job * SMALL) / SMALL, expected, "{has} {parsed} {job}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_begins_from_a_large_job_is_served_before_those_who_are_not_decoded_yet() {
    let (memory, served) = (memory(64), Served::default());
    let call = with(&memory, Resize, 30).await.unwrap();
    let other = with(&memory, Resize, 10).await.unwrap();
    let line = grow(&memory, Resize, 30, &served, "line");
    until_waiting(&memory, 1).await;
    enter(&memory, Resize, 30, &served, "new");
    until_waiting(&memory, 2).await;
    let begun = {
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let of_job = call.take_for_job(20 * SMALL, JOB_WAIT).await.unwrap();
            served.lock().push("job");
            assert_eq!((of_job.bytes(), call.bytes()), (20 * SMALL, 30 * SMALL));
        })
    };
    until_waiting(&memory, 3).await;
    // Nor does what lower ceilings leave go to others meanwhile.
    with(&memory, Submit, 2).await.unwrap_err();
    drop(other);
    begun.await.unwrap();
    line.await.unwrap().unwrap();
    assert_eq!(served.lock()[..2], ["job", "line"]);
}

#[tokio::test(start_paused = true)]
async fn who_holds_what_a_job_needs_and_has_not_come_so_far_is_refused() {
    let (memory, served) = (memory(64), Served::default());
    let call = with(&memory, Resize, 30).await.unwrap();
    let mut line = Vec::new();
    let first = with(&memory, Resize, 6).await.unwrap();
    let second = with(&memory, Resize, 6).await.unwrap();
    for (count, name, share) in [(1, "first", first), (2, "second", second)] {
        let served = Arc::clone(&served);
        line.push(tokio::spawn(async move {
            share.take(30 * SMALL).await?;
            served.lock().push(name);
            Ok::<_, Denied>(())
        }));
        until_waiting(&memory, count).await;
    }
    // With both there is too little, and with the one that came first there is enough.
    let of_job = call.take_for_job(20 * SMALL, JOB_WAIT).await.unwrap();
    assert_eq!(line.pop().unwrap().await.unwrap(), Err(Denied::Busy));
    drop((of_job, call));
    line.pop().unwrap().await.unwrap().unwrap();
    assert_eq!((served.lock().as_slice(), memory.taken().0), (["first"].as_slice(), 0));
}

#[tokio::test(start_paused = true)]
async fn two_that_have_begun_do_not_wait_for_each_other_and_nobody_is_refused_for_that() {
    let (memory, served) = (memory(64), Served::default());
    let one = with(&memory, Resize, 25).await.unwrap();
    let other = with(&memory, Resize, 25).await.unwrap();
    let waits = tokio::spawn(async move { one.take_for_job(20 * SMALL, JOB_WAIT).await.map(|share| share.bytes()) });
    until_waiting(&memory, 1).await;
    let line = grow(&memory, Resize, 20, &served, "line");
    until_waiting(&memory, 2).await;
    let began = time::Instant::now();
    assert_eq!(other.take_for_job(20 * SMALL, JOB_WAIT).await.unwrap_err(), Denied::Busy);
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(other);
    assert_eq!(waits.await.unwrap(), Ok(20 * SMALL));
    line.await.unwrap().unwrap();
    assert_eq!(memory.taken().0, 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_for_the_job_of_a_dry_run() {
    let memory = memory(64);
    let others = with(&memory, Resize, 42).await.unwrap();
    let line = with(&memory, Resize, 6).await.unwrap();
    let line = tokio::spawn(async move { line.take(20 * SMALL).await });
    until_waiting(&memory, 1).await;
    let began = time::Instant::now();
    // It could have so much without what the line holds.
    assert_eq!(memory.share(DryRun).take_for_job(45 * SMALL, WAIT).await.unwrap_err(), Denied::Busy);
    assert_eq!(began.elapsed(), WAIT);
    drop(others);
    assert_eq!(line.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_because_a_dry_run_waits_for_its_job() {
    for has_begun in [false, true] {
        let memory = memory(64);
        let others = with(&memory, Resize, 30).await.unwrap();
        let resize = with(&memory, Resize, 8).await.unwrap();
        let dry_run = with(&memory, DryRun, 10).await.unwrap();
        let dry_run = tokio::spawn(async move { dry_run.take_for_job(35 * SMALL, WAIT).await.map(drop) });
        until_waiting(&memory, 1).await;
        // As long as the resize has something there is too little for the dry run.
        let resize = tokio::spawn(async move {
            if has_begun {
                resize.take_for_job(20 * SMALL, JOB_WAIT).await.map(drop)
            } else {
                resize.take(20 * SMALL).await
            }
        });
        assert_eq!(dry_run.await.unwrap(), Err(Denied::Busy), "{has_begun}");
        drop(others);
        assert_eq!(resize.await.unwrap(), Ok(()), "{has_begun}");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_let_another_call_go_first_after_some() {
    // units of each submission, how many of them -> who is served
    let table: [(u64, usize, &[&str]); 2] = [
        (40, 1, &["job", "job", "job", "job", "submission", "job", "job"]),
        // There is room for both at once, and it is the turn of one.
        (20, 2, &["job", "job", "job", "job", "submission", "job", "job", "submission"]),
    ];
    for (units, submissions, expected) in table {
        let (memory, served) = (memory(64), Served::default());
        let all = with(&memory, Resize, 50).await.unwrap();
        for number in 1..=6 {
            let (share, served) = (memory.share(Resize), Arc::clone(&served));
            tokio::spawn(async move {
                let _of_job = share.take_for_job(40 * SMALL, JOB_WAIT).await.unwrap();
                served.lock().push("job");
            });
            until_waiting(&memory, number).await;
        }
        for number in 1..=submissions {
            enter(&memory, Submit, units, &served, "submission");
            until_waiting(&memory, 6 + number).await;
        }
        drop(all);
        until_waiting(&memory, 0).await;
        while memory.taken().0 > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(served.lock().as_slice(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_take_little_or_nothing_wait_for_no_large_call() {
    let (memory, served) = (memory(64), Served::default());
    let _all = with(&memory, Resize, 50).await.unwrap();
    let call = memory.share(Render);
    for _ in 0..2 * IN_A_ROW {
        call.take_for_job(0, WAIT).await.unwrap();
    }
    let _line = grow(&memory, Resize, 20, &served, "line");
    until_waiting(&memory, 1).await;
    let began = time::Instant::now();
    for bytes in [0, SMALL] {
        call.take_for_job(bytes, WAIT).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_job_does_not_wait_for_who_waits_for_it() {
    let (memory, served) = (memory(64), Served::default());
    for _ in 0..IN_A_ROW {
        memory.share(Resize).take_for_job(9 * SMALL, WAIT).await.unwrap();
    }
    let call = with(&memory, Resize, 30).await.unwrap();
    let line = with(&memory, Resize, 6).await.unwrap();
    let line = tokio::spawn(async move { line.take(25 * SMALL).await });
    until_waiting(&memory, 1).await;
    let began = time::Instant::now();
    // A new one could have it when both have what they wait for, and leaves soon.
    enter_in_vain(&memory, 50);
    until_waiting(&memory, 2).await;
    drop(call.take_for_job(10 * SMALL, JOB_WAIT).await.unwrap());
    assert!(began.elapsed() <= WAIT, "{:?}", began.elapsed());
    drop(call);
    line.await.unwrap().unwrap();
    assert!(served.lock().is_empty());
}

/// A call that has nothing, and is refused.
fn enter_in_vain(memory: &Memory, units: u64) {
    let memory = memory.clone();
    tokio::spawn(async move { with(&memory, Resize, units).await.unwrap_err() });
}
