//! `stockade-cli`: the command line for operators and scripts.
//!
//! Exit 0: done. 1: rejected. 2: usage. 3: not reached, timed out or failed.

mod arguments;
mod feed;
mod order;
mod output;
mod sale;
mod stock;

use arguments::{Arguments, Verb};
use clap::Parser;
use output::{Failure, Output};
use std::process::ExitCode;
use stockade_client::{Client, ClientBuilder};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        eprintln!("the runtime could not be started");
        return ExitCode::from(3);
    };
    match runtime.block_on(run(arguments)) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let out = Output { json: arguments.json };
    let settings = ClientBuilder::new(&arguments.server)
        .name("stockade-cli")
        .token(arguments.token.clone())
        .connect_timeout(arguments.timeout)
        .request_timeout(arguments.timeout);
    // What can be refused without the server is refused first.
    let prepared = match &arguments.verb {
        Verb::Sale(sale::Verb::Put { file }) => Some(sale::read_file(file)?),
        _ => None,
    };
    let client: Client = settings.connect().await?;
    match arguments.verb {
        Verb::Sale(verb) => sale::run(&client, &out, verb, prepared).await,
        Verb::Stock(verb) => stock::run(&client, &out, verb).await,
        Verb::Order(verb) => order::run(&client, &out, verb).await,
        Verb::Feed(verb) => feed::run(&client, &out, verb).await,
        Verb::Top { sale, once } => stock::top(&client, &out, sale, once).await,
    }
}
