package main

import (
	"context"

	"github.com/spf13/cobra"

	"trellis/cmd/internal/client"
)

func accountsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:   "accounts",
		Short: "List what each account holds, and may hold",
		Long: `List the accounts of the server's authentication file: what each of them holds, and behind it how much it may. WAITS is how often
one of its clients had to wait because of the rate. A client without the right admin sees its own account.

JSON has the keys of list-accounts, which also tells which tubes are an account's and what was refused. A limit of 0 is none.`,
		Example: "  trellis accounts\n  trellis accounts -o json | jq '.[] | select(.[\"refused-jobs\"] > 0).name'",
		Args:    cobra.NoArgs,
	}, 0, listAccounts)
}

func listAccounts(ctx context.Context, c *client.Conn, p *printer, _ []string) error {
	accounts, err := c.Accounts(ctx)
	if err != nil {
		return err
	}
	limit := func(head, key string, show func(client.Value) string) column {
		return column{head: head, key: key, right: true, show: func(v client.Value) string {
			if v.Text == "0" {
				return "-"
			}
			return show(v)
		}}
	}
	return p.list(
		column{head: "ACCOUNT", key: "name"},
		counted("JOBS", "jobs"), limit("MAX", "max-jobs", asCount),
		column{head: "MEMORY", key: "memory", right: true, show: asSize}, limit("MAX", "max-memory", asSize),
		counted("TUBES", "tubes"), limit("MAX", "max-tubes", asCount),
		counted("KEYS", "keys"), limit("MAX", "max-keys", asCount),
		counted("CONNECTIONS", "connections"), limit("MAX", "max-connections", asCount),
		limit("RATE", "rate", asCount), counted("WAITS", "rate-waits"),
	).all(accounts, "the server has no accounts")
}
