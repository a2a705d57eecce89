//! Operations for people.

use super::out::{Out, pretty};
use gateway::view::OperationView;

/// The head of the list.
pub(super) const HEAD: [&str; 6] = ["OPERATION", "STATE", "DELIVERY", "METHOD", "OPENED", "EFFECTS"];

/// A row of the list.
pub(super) fn row(op: &OperationView) -> Vec<String> {
    let state = match &op.waits_for {
        _ if op.is_error => format!("{} (error)", op.state),
        Some(what) if op.state == "input_required" => format!("{} ({what})", op.state),
        _ => op.state.clone(),
    };
    vec![op.id.clone(), state, op.delivery.clone(), op.tool.clone(), op.created_at.clone(), effects(op)]
}

fn effects(op: &OperationView) -> String {
    let one = |e: &gateway::view::EffectView| {
        format!("{} ({} send{})", e.state, e.sends, if e.sends == 1 { "" } else { "s" })
    };
    op.effects.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// One line, for following.
pub(super) fn line(out: &Out, op: &OperationView) -> String {
    let state = match op.state.as_str() {
        "completed" if !op.is_error => out.good(&op.state),
        "in_doubt" | "input_required" => out.bad(&op.state),
        _ => op.state.clone(),
    };
    let why = op.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default();
    format!(
        "{} {state}{why}  {}  attempt {}  {}  delivery {}",
        op.id,
        op.tool,
        op.attempt,
        effects(op),
        op.delivery
    )
}

/// Everything about one.
pub(super) fn whole(out: &Out, op: &OperationView) {
    out.say(line(out, op));
    out.say("");
    let say = |name: &str, value: &str| out.say(format!("{name:<12} {value}"));
    say("method", &op.tool);
    say("principal", &op.principal);
    say("mode", &op.mode);
    if let Some(key) = &op.key {
        say("key", key);
    }
    say("opened", &op.created_at);
    if let Some(at) = &op.ended_at {
        say("ended", at);
    }
    say("delivery", &format!("{} since {}", op.delivery, op.delivery_at));
    if op.joined > 0 {
        say("joined by", &format!("{} further call{}", op.joined, if op.joined == 1 { "" } else { "s" }));
    }
    for e in &op.effects {
        out.say("");
        out.say(format!("{} {}  {}", out.bold("effect"), e.name, e.summary));
        let say = |name: &str, value: &str| out.say(format!("  {name:<12} {value}"));
        say("state", &e.state);
        say("key", &e.key);
        say("recovery", &format!("{}: {}", e.strategy, e.promise));
        say("intended", &e.intended_at);
        say("sends", &format!("{} ({} unresolved), {} look-ups", e.sends, e.unresolved, e.looks));
        if let Some(until) = &e.replay_until {
            say("replays", &format!("safe until {until}"));
        }
        if !e.why.is_empty() {
            say("last seen", &e.why);
        }
        if let Some(intent) = &e.intent {
            out.say(out.dim("  request"));
            out.say(indent(&super::request::text(intent, &e.key)));
        }
        if let Some(receipt) = &e.receipt {
            out.say(out.dim("  receipt"));
            out.say(indent(&pretty(receipt)));
        }
    }
    for input in &op.inputs {
        question(out, input);
    }
    if let Some(planned) = &op.planned {
        out.say("");
        out.say(format!("{} sent after a yes, and exactly so", out.bold("request")));
        out.say(indent(&super::request::text(&planned["request"], "{key}")));
    }
    if let Some(arguments) = op.arguments.as_ref().filter(|_| op.waits_for.as_deref() == Some("approval")) {
        out.say("");
        out.say(out.bold("arguments"));
        out.say(indent(&pretty(arguments)));
    }
    for d in &op.decisions {
        out.say("");
        out.say(format!("{} {} by {}: {}", out.bold("decision"), d.at, d.by, d.what));
    }
    if let Some(result) = &op.result {
        out.say("");
        out.say(out.bold("result"));
        out.say(indent(&pretty(result)));
    }
    next(out, op);
}

/// A question, and who answered it when.
fn question(out: &Out, input: &gateway::view::InputView) {
    out.say("");
    let what = if input.kind == "approval" { "approval" } else { "question" };
    out.say(format!("{} {}  asked {}", out.bold(what), input.key, input.asked_at));
    let detail = input.detail.as_ref();
    if let Some(request) = detail.and_then(|d| d.request.as_ref()) {
        match request["params"]["message"].as_str() {
            Some(message) => out.say(indent(message)),
            None => out.say(indent(&pretty(request))),
        }
    }
    match (&input.answered_at, &input.answered_by) {
        (Some(at), Some(by)) => {
            let said = detail.and_then(|d| d.answer.as_ref()).map(|a| format!(": {a}")).unwrap_or_default();
            out.say(format!("  answered {at} by {by}{said}"));
        }
        _ => out.say("  no answer yet"),
    }
}

/// What somebody has to do now.
fn next(out: &Out, op: &OperationView) {
    let id = &op.id;
    let lines = match op.waits_for.as_deref() {
        Some("approval") => vec![
            "It waits for a person's yes; nothing of it was done:".to_owned(),
            format!("  counterfoil ops approve {id} --by NAME   what is shown above is done, once"),
            format!("  counterfoil ops deny {id} --by NAME      nothing of it is done, for good"),
        ],
        Some("answers") => vec![
            "It waits for what its client is asked; the same call from a client that can be asked goes on:"
                .to_owned(),
            format!("  counterfoil ops cancel {id}              nobody will answer"),
        ],
        Some(_) => vec![
            "Look at the provider, then decide:".to_owned(),
            format!("  counterfoil ops resolve {id} --applied --by NAME       it happened"),
            format!("  counterfoil ops resolve {id} --not-applied --by NAME   it did not, and will not"),
            format!(
                "  counterfoil ops resolve {id} --send-again --by NAME    send the recorded request once more"
            ),
            format!("  counterfoil ops retry {id}                             ask the provider again"),
        ],
        None => return,
    };
    out.say("");
    for line in lines {
        out.say(line);
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|l| format!("    {l}")).collect::<Vec<_>>().join("\n")
}
