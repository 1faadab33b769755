//! Shrinking of a failing history: steps are removed as long as it still fails.

use super::compare::{Failure, run};
use super::history::{Cut, Form, FragmentDefect, Op, PacketDefect};

/// Returns the shortest history found that still shows a difference, and that difference.
pub fn shrink(world: u64, seed: u64, ops: &[Op]) -> (Vec<Op>, Failure) {
    shrink_with(ops, |ops| run(world, seed, ops).map(|_| ()))
}

/// Like [`shrink`], with another function that runs a history.
pub fn shrink_with(ops: &[Op], run: impl Fn(&[Op]) -> Result<(), Failure>) -> (Vec<Op>, Failure) {
    let mut failure = match run(ops) {
        Err(failure) => failure,
        Ok(()) => Failure { step: 0, what: "the history does not fail".into() },
    };
    let mut ops = ops[..ops.len().min(failure.step + 1)].to_vec();
    let mut attempt = |ops: &mut Vec<Op>, candidate: Vec<Op>| {
        if let Err(f) = run(&candidate) {
            *ops = candidate;
            ops.truncate(f.step + 1);
            failure = f;
            return true;
        }
        false
    };
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let end = (at + size).min(ops.len());
            let candidate = [&ops[..at], &ops[end..]].concat();
            if !attempt(&mut ops, candidate) {
                at += size;
            }
        }
        size /= 2;
    }
    // Then the simplest form of each packet.
    for at in 0..ops.len() {
        let Some(&form) = ops.get(at).and_then(Op::form) else { continue };
        let plain = Form { door: form.door, ..Form::PLAIN };
        let whole = Form { cut: None, ..form };
        let in_order =
            Form { cut: form.cut.map(|cut| Cut { order: 0, odd: FragmentDefect::Nothing, ..cut }), ..form };
        let there = Form { astray: 0, ..form };
        for simpler in
            [Form::PLAIN, plain, whole, in_order, there, Form { twist: PacketDefect::None, ..form }]
        {
            let Some(candidate) = ops.get(at).map(|op| op.with_form(simpler)) else { break };
            let all = [&ops[..at], &[candidate], &ops[at + 1..]].concat();
            if attempt(&mut ops, all) {
                break;
            }
        }
    }
    (ops, failure)
}

/// The history as the source of a test.
pub fn as_test(world: u64, seed: u64, ops: &[Op], failure: &Failure) -> String {
    let mut out = format!("// {}\n", failure.what.replace('\n', "\n// "));
    out += "#[test]\nfn name_of_the_regression() {\n";
    out += "    let history = [\n";
    for op in ops {
        out += &format!("        {op:?},\n");
    }
    out += &format!("    ];\n    replay({world}, {seed}, &history);\n}}\n");
    out
}
