//! What a payment service's call-back does: confirms an order, without a runtime of its own.
//!
//! `cargo run -p stockade-client --example pay -- ORDER REFERENCE` against a server on the default
//! address. Run it twice: the second time is `already_confirmed`.
//!
//! Confirming is idempotent for one reference, so a call-back that comes twice, or is asked again
//! after a time-out, does no harm. What must never happen silently is money for nothing: `too_late`
//! and `id_conflict` mean that the payment has to be given back.

use std::process::ExitCode;
use stockade_client::protocol::text::PaymentRef;
use stockade_client::protocol::{Command, OrderId, Outcome, Reply};
use stockade_client::{Client, Error, blocking};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [order, reference] = arguments.as_slice() else {
        eprintln!("usage: pay ORDER REFERENCE");
        return ExitCode::from(2);
    };
    match pay("127.0.0.1:7421", order, reference) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn pay(address: &str, order: &str, reference: &str) -> Result<(), Box<dyn std::error::Error>> {
    let order = order.parse().ok().and_then(OrderId::new).ok_or("an order is a number from 1")?;
    let payment = PaymentRef::new(reference.as_bytes())?;
    let client = blocking::Client::connect(Client::builder(address).name("pay"))?;
    // Several tries of several seconds each: a paid order is worth waiting for. The call-back's own
    // queue keeps what is left.
    for _ in 0..5 {
        let confirm = Command::Confirm { order, payment: payment.clone() };
        let reply = match client.call(confirm) {
            Ok(Reply::Order(reply)) => reply,
            Ok(other) => return Err(format!("unexpected answer {other:?}").into()),
            // In doubt or not reached: the same call again, with the same reference.
            Err(error @ (Error::InDoubt(_) | Error::NotReached { .. })) => {
                eprintln!("again: {error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match reply.outcome {
            Outcome::Confirmed | Outcome::AlreadyConfirmed => println!("order {order} is paid"),
            Outcome::TooLate => println!("give it back: the order is {}", reply.state.word()),
            Outcome::IdConflict => println!("give it back: the order was paid otherwise"),
            Outcome::Busy => continue,
            other => println!("not taken: {}", other.word()),
        }
        return Ok(());
    }
    Err("no answer: leave it in the queue".into())
}
