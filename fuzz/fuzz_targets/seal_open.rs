#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| counterfoil_fuzzing::seal_open(data));
