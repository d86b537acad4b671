<?php
// See clients_test.go.
require '/usr/share/php/Pheanstalk/autoload.php';

[, $port, $token] = $argv + [2 => ''];

function report(callable $step): void
{
    try {
        $step();
        echo "done\n";
    } catch (\Throwable $e) {
        echo 'error ', get_class($e), ': ', strtok($e->getMessage(), "\n"), "\n";
    }
}

$client = null;
$job = function () use (&$client) {
    $client->useTube('billing/x')->put('x');
    $client->watch('billing/x');
    $client->delete($client->reserve());
};
$start = function () use (&$client, $job, $port, $token) {
    $client = Pheanstalk\Pheanstalk::create('127.0.0.1', (int) $port);
    if ($token !== '') {
        $client->useTube('auth/' . $token);
    }
    $job();
};

report($start);
if (fgets(STDIN) !== false) {
    report($job);
    report($start);
}
