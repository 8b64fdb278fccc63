//! The fuzz target's corpus, replayed.

#[test]
fn fuzz_corpus_does_not_panic() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz/corpus/cel_source"
    );
    let mut replayed = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        tautline_cel::fuzz_source(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 5, "{corpus} has {replayed} files");
}
