package main

// examples are the commands that `trellis help` shows. A test runs them.
const examples = `  # what is there: nothing is reserved, and nothing changes
  trellis tubes 'mail*'
  trellis jobs mail --state buried --grep '"user": 17'
  trellis peek --tube mail --state buried
  trellis stats --job 1

  # changes, by ids or by tube and state
  trellis kick --tube mail --count 1
  trellis bury 1
  trellis copy --tube mail --state buried --count 2 --to mail.test
  trellis move --tube mail --state buried --count all --to mail.failed
  trellis delete --tube mail --state ready --count 1
  trellis clear mail.test --dry-run
  trellis clear mail.test --yes

  # before maintenance, and after
  trellis pause mail 10m
  trellis drain
  trellis undrain
  trellis resume --all

  # jobs in and out
  trellis put -t news '{"title": "a"}'
  seq 1000 | trellis put -t numbers --lines
  trellis export numbers | trellis import --tube numbers.copy

  # jobs at given times: without --check, and on two hosts, it puts them
  echo '30 2 * * mon-fri  reports --ttr 10m nightly' | trellis cron --check /dev/stdin

  # for scripts
  trellis tubes -o ndjson | grep '"current-jobs-buried":[1-9]'
  trellis top --once --sort in/s --limit 10`
