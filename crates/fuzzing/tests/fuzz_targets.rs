//! The fuzz targets in the normal test run: every kept input, and mutations of them from a fixed seed, within a few
//! seconds. What a longer run finds is put into `fuzz/seeds`, where it is checked from then on.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod mutate;

use counterfoil_fuzzing::{TARGETS, Target};
use mutate::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long each target gets at most; a slow machine checks fewer mutations.
const TIME: Duration = Duration::from_millis(1200);
/// How many mutations each target gets at most.
const MOST: u64 = 20_000;
/// How many it must get on any machine, or the run shows nothing.
const LEAST: u64 = 50;
/// The bound on all kept inputs, in bytes.
const KEPT: u64 = 200 * 1024;

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

fn kept(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(seeds().join(name))
        .unwrap_or_else(|e| panic!("no kept inputs for {name}: {e}"))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    all.sort();
    assert!(all.len() >= 5, "{name} has {} kept inputs", all.len());
    all
}

/// Runs it once; a panic is told with the input, ready to be kept.
fn run((name, target): &Target, input: &[u8], which: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let at = std::env::temp_dir().join(format!("counterfoil-fuzz-{name}-{}", std::process::id()));
        std::fs::write(&at, input).unwrap();
        panic!("{name} fails on {which}; the input is in {}", at.display());
    }
}

#[test]
fn kept_inputs_hold() {
    for target in TARGETS {
        for (file, input) in kept(target.0) {
            run(target, &input, &format!("fuzz/seeds/{}/{file}", target.0));
        }
    }
}

/// One input from anywhere, as a longer run prints it: `COUNTERFOIL_FUZZ_INPUT=target:path`.
#[test]
fn one_input_holds() {
    let Ok(asked) = std::env::var("COUNTERFOIL_FUZZ_INPUT") else { return };
    let (name, path) = asked.split_once(':').expect("target:path");
    let target = TARGETS.iter().find(|(n, _)| *n == name).expect("a target");
    run(target, &std::fs::read(path).unwrap(), path);
}

#[test]
fn kept_inputs_are_few_and_every_target_has_some() {
    let folders: Vec<String> = std::fs::read_dir(seeds())
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert!(folders.iter().all(|f| names.contains(&f.as_str())), "{folders:?}");
    let bytes: usize = names.iter().flat_map(|name| kept(name)).map(|(_, input)| input.len()).sum();
    assert!(bytes as u64 <= KEPT, "{bytes} bytes of inputs are kept");
    // The programs of libFuzzer are the same targets.
    for name in names {
        let program = seeds().join(format!("../fuzz_targets/{name}.rs"));
        let text = std::fs::read_to_string(&program).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        assert!(text.contains(&format!("counterfoil_fuzzing::{name}(data)")), "{text}");
    }
}

/// Mutations of the kept inputs.
fn mutations(index: usize) {
    let target = &TARGETS[index];
    let all: Vec<Vec<u8>> = kept(target.0).into_iter().map(|(_, input)| input).collect();
    let mut mutator = Mutator::new(0xc0de ^ index as u64);
    let started = Instant::now();
    let mut done = 0;
    while done < MOST && (done < LEAST || started.elapsed() < TIME) {
        let input = mutator.next(&all);
        run(target, &input, &format!("mutation {done}"));
        done += 1;
    }
    println!("{}: {done} mutations", target.0);
}

macro_rules! each {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            let index = TARGETS.iter().position(|(name, _)| *name == stringify!($name)).unwrap();
            mutations(index);
        }
    )* };
}

each!(canonical config envelope form front headers input_answer keys lines manifest schema seal_open sse template);
