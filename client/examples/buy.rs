//! Buys two units, and is sure of the outcome whatever happens on the way.
//!
//! `cargo run -p stockade-client --example buy -- [USER]` against a server on the default address;
//! the example makes its sale itself.
//!
//! The three rules of a safe purchase:
//! 1. make the request id once, before the first attempt, and keep it with the cart;
//! 2. a rejection is an answer; an error is not;
//! 3. in doubt, ask; where no answer can be waited for, withdraw.

use std::process::ExitCode;
use stockade_client::protocol::command::{Line, Reserve};
use stockade_client::protocol::sale::{OpensAt, SkuPatch};
use stockade_client::protocol::{OrderState, Outcome, RequestId, SaleId, SalePatch, SkuId, UserId};
use stockade_client::{Client, Error, InDoubt, WhenBusy};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let user = std::env::args().nth(1).unwrap_or_else(|| "7".into());
    match run("127.0.0.1:7421", &user).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: &str, user: &str) -> Result<()> {
    let user = user.parse().ok().and_then(UserId::new).ok_or("a user is a number from 1")?;
    // A shop that would rather wait a moment than show "try again".
    let client = Client::builder(address).name("buy").when_busy(WhenBusy::Retry).connect().await?;
    let (sale, sku) = put_sale(&client).await?;
    // Rule 1. Here the cart's number and the user's; in a shop, what the cart already has.
    let request = RequestId::parse(format!("cart-{user}-1").as_bytes())?;
    let reserve = Reserve {
        sale,
        user,
        request,
        lines: [Line { sku, quantity: 2 }].into_iter().collect(),
        data: Default::default(),
        not_after: None,
    };
    match client.reserve(reserve).await {
        // Rule 2.
        Ok(reply) => match (reply.outcome, reply.order) {
            (Outcome::Held, Some(order)) => {
                let again = if reply.again { " (from an earlier attempt)" } else { "" };
                println!("order {order} holds the units until {}{again}", reply.expires_at);
            }
            (Outcome::Limit, Some(order)) => println!("you have order {order} already"),
            (outcome, _) => println!("not bought: {}", outcome.word()),
        },
        // Rule 3.
        Err(Error::InDoubt(doubt)) => settle(&client, &doubt).await?,
        Err(error) => println!("nothing was bought: {error}"),
    }
    let report = client.shutdown(std::time::Duration::from_secs(1)).await;
    assert!(report.in_doubt.is_empty(), "every call was waited for");
    Ok(())
}

/// There was no answer in time. Either the order is there, or it is made sure that it never is.
async fn settle(client: &Client, doubt: &InDoubt) -> Result<()> {
    if let Some(view) = client.resolve(doubt).await?
        && view.state != OrderState::Unknown
    {
        println!("bought after all: order {:?} is {}", view.order, view.state.word());
        return Ok(());
    }
    // "unknown" is not final: the request may still be under way.
    if let InDoubt::Request { sale, user, request } = doubt.clone() {
        let reply = client.withdraw(sale, user, request).await?;
        println!("given up: {}", reply.outcome.word());
    }
    Ok(())
}

async fn put_sale(client: &Client) -> Result<(SaleId, SkuId)> {
    let sale = SaleId::new(4242).ok_or("sale")?;
    let sku = SkuId::new(1001).ok_or("sku")?;
    let mut patch = SalePatch::new(sale);
    patch.name = Some("cherries".into());
    patch.opens_at = Some(OpensAt::Now);
    patch.skus = vec![SkuPatch {
        sku,
        stock: Some(100),
        limit_per_user: Some(2),
        max_per_order: None,
        labels: Some(vec![("spec".into(), "500 g".into())]),
    }];
    // The same file again is `unchanged`, so that the example can be run twice.
    let reply = client.sale_put(patch).await?;
    if reply.outcome.is_rejection() {
        return Err(reply.why.into());
    }
    Ok((sale, sku))
}
